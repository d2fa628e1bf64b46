/* A session's folder: the one place that a client can name files in. */
#ifndef STERNA_RPC_WORKSPACE_H_
#define STERNA_RPC_WORKSPACE_H_

#include "common.h"

typedef struct {
  int folder;      /* open: what the client sees */
  int parts;       /* open: files that are not whole yet, which it does not see */
  char path[1024]; /* absolute: of both */
} workspace;

INTERNAL int workspace_create(workspace *w);
INTERNAL void workspace_remove(workspace *w); /* with all that is in it */
INTERNAL uint64_t workspace_used(const workspace *w); /* bytes of all files */

/* A file that is made in pieces, by number, and then moved to its name, in place of what was there:
   a library that is loaded keeps the file that it was loaded from. */
INTERNAL int workspace_begin_part(const workspace *w, int number, int *file);
INTERNAL int workspace_name_part(const workspace *w, int number, sterna_bytes name);
INTERNAL void workspace_drop_part(const workspace *w, int number);
INTERNAL void workspace_part_path(const workspace *w, int number, char *out, size_t room);

/* Names are relative, of parts that are neither empty nor ".."; no link is followed. */
INTERNAL int workspace_check_name(sterna_bytes name);
INTERNAL int workspace_open(const workspace *w, sterna_bytes name, uint64_t *size, int *file);
INTERNAL int workspace_delete(const workspace *w, sterna_bytes name); /* a file, or a folder with its files */
INTERNAL int workspace_list(const workspace *w, sterna_bytes name, sterna_any *out); /* names, sorted */
/* Of a file that is there. */
INTERNAL int workspace_path(const workspace *w, sterna_bytes name, char *out, size_t room);

#endif

/* The things that a session owns and its client knows by number. */
#ifndef STERNA_RPC_HANDLES_H_
#define STERNA_RPC_HANDLES_H_

#include "common.h"

enum { MOST_HANDLES = 1 << 20 };

typedef struct {
  sterna_object *object; /* null: the slot is free */
  uint64_t bytes;        /* of an array that the client had allocated */
  uint32_t generation;   /* makes numbers that were used before differ from those that follow */
  uint32_t next; /* free slot, or slot that was filled before this one; its number plus one */
} handle_slot;

typedef struct {
  handle_slot *slots;
  uint32_t used, room;
  uint32_t first_free, newest; /* their numbers plus one; 0 when there is none */
  uint64_t bytes;                  /* of all arrays that the client had allocated */
} handles;

/* Takes a reference of its own. */
INTERNAL int handles_add(handles *h, void *object, uint64_t bytes, uint64_t *handle);
/* Borrowed; null, with an error, when there is none of this type. */
INTERNAL sterna_object *handles_find(const handles *h, uint64_t handle, int32_t type_index);
INTERNAL void handles_free(handles *h, uint64_t handle); /* nothing there is no mistake */
/* What was added since the first of these is dropped by the second: the client never heard of it. */
INTERNAL void handles_begin(handles *h);
INTERNAL void handles_undo(handles *h);
INTERNAL void handles_end(handles *h);

#endif

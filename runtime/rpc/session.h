/* A session: one client's calls, and what it owns here. */
#ifndef STERNA_RPC_SESSION_H_
#define STERNA_RPC_SESSION_H_

#include "common.h"

#include <pthread.h>
#include <stdatomic.h>

#include "frame.h"
#include "handles.h"
#include "stream.h"
#include "supervise.h"
#include "workspace.h"

enum { MOST_NESTED_CALLS = 64, MOST_UPLOADS = 16 };

/* A file that comes in pieces. */
typedef struct {
  int file; /* -1: none */
  uint64_t size;
  sterna_any name;
} upload;

typedef struct session {
  stream peer;
  const workspace *files;
  size_t most_head;     /* that the client takes */
  uint64_t array_limit, disk_limit; /* bytes of arrays and of uploaded files; 0: no limit */
  handles owned;
  int nested;  /* calls that have begun and not ended */
  int ended;   /* the connection is not to be used any more */
  pthread_t thread;
  _Atomic(struct callback *) dropped; /* functions of the client that nobody here holds any more */
  upload uploads[MOST_UPLOADS];
} session;

/* Serves the client until it goes; 0 also when it went in bad manners. */
INTERNAL int session_run(stream *peer, const workspace *files, size_t most_head,
                         const session_limits *limits);

/* session.c: sends a request and serves the client until its answer comes. */
INTERNAL int session_ask(session *s, int kind, const writer *head, sterna_any *answer);
INTERNAL int session_send(session *s, int kind, const writer *head, uint64_t bulk_size);

/* values.c: values of the runtime to and from the wire. Decoding expects what check_form has passed. */
INTERNAL int value_decode(session *s, reader *r, sterna_any *out);
INTERNAL int value_encode(session *s, const sterna_any *value, int depth, writer *w);
/* bytes: what it counts towards the session's limit */
INTERNAL int value_encode_array(session *s, sterna_ndarray *array, uint64_t bytes, writer *w);

/* callback.c: functions that the client has. */
INTERNAL int callback_create(session *s, uint64_t handle, sterna_function **out);
INTERNAL int callback_handle(const sterna_function *function, uint64_t *handle); /* 1 if it is one */
INTERNAL void callback_flush(session *s); /* tells the client which ones are not needed any more */

/* arrays.c: the frames about arrays. Answers, or ends the connection. */
INTERNAL void arrays_serve(session *s, const frame *f, reader *head);

/* session.c */
INTERNAL void session_answer(session *s, int failed, const sterna_any *value); /* RETURN, else EXCEPTION */
INTERNAL void session_end(session *s); /* after the error that is set, of which it tells the client */

/* builtins.c: the functions whose names begin with "rpc.", and the registry's; null: there is none. */
INTERNAL int builtin_get_function(session *s, sterna_bytes name, sterna_function **out);

typedef struct {
  const char *name;
  int32_t arguments;
  int (*call)(session *s, const sterna_any *args, sterna_any *ret);
} builtin;

/* files.c, evaluator.c: parts of the table of these. */
INTERNAL int builtin_load_module(session *s, const sterna_any *args, sterna_any *ret);
INTERNAL int builtin_link(session *s, const sterna_any *args, sterna_any *ret);
INTERNAL int builtin_upload(session *s, const sterna_any *args, sterna_any *ret);
INTERNAL int builtin_download(session *s, const sterna_any *args, sterna_any *ret);
INTERNAL int builtin_remove(session *s, const sterna_any *args, sterna_any *ret);
INTERNAL int builtin_listdir(session *s, const sterna_any *args, sterna_any *ret);
INTERNAL int builtin_time_evaluator(session *s, const sterna_any *args, sterna_any *ret);

#endif

/* Functions that the client has: calling one here calls it there. */
#include "session.h"

#include <stdlib.h>

typedef struct callback {
  session *s;
  uint64_t handle;
  struct callback *next;
} callback;

static int call_client(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  const callback *c = self;
  writer head = {NULL, 0, 0, 0};
  int failed = 0;
  if (!pthread_equal(pthread_self(), c->s->thread))
    return sterna_set_error("RuntimeError", "a client's function can only be called in the session's thread");
  put_number(&head, TAG_FUNCTION, 1);
  put_number(&head, OWNED_BY_RECEIVER, 1);
  put_number(&head, c->handle, 8);
  for (int32_t i = 0; i < n && !failed; i++) failed = value_encode(c->s, &args[i], 0, &head);
  if (!failed) failed = session_ask(c->s, FRAME_CALL, &head, ret);
  writer_free(&head);
  return failed;
}

/* May run in any thread: the client is told later. */
static void drop_callback(void *self) {
  callback *c = self;
  c->next = atomic_load(&c->s->dropped);
  while (!atomic_compare_exchange_weak(&c->s->dropped, &c->next, c)) continue;
}

int callback_create(session *s, uint64_t handle, sterna_function **out) {
  callback *c = malloc(sizeof *c);
  if (!c) return sterna_set_error("MemoryError", "no memory for a function of the client");
  *c = (callback){s, handle, NULL};
  if (!sterna_function_create(call_client, c, drop_callback, out)) return 0;
  free(c);
  return -1;
}

int callback_handle(const sterna_function *function, uint64_t *handle) {
  const callback *c = sterna_function_self(function, call_client);
  if (c) *handle = c->handle;
  return c != NULL;
}

void callback_flush(session *s) {
  callback *c = atomic_exchange(&s->dropped, NULL);
  writer head = {NULL, 0, 0, 0};
  while (c) {
    callback *next = c->next;
    put_tagged_int(&head, (int64_t)c->handle);
    free(c);
    c = next;
  }
  if (head.size && !head.failed && !s->ended && frame_write(&s->peer, FRAME_FREE, &head, 0)) s->ended = 1;
  writer_free(&head);
}

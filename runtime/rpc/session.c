/* A session: serves one client's frames in their order. */
#include "session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- answers ---- */

int session_send(session *s, int kind, const writer *head, uint64_t bulk_size) {
  callback_flush(s);
  if (!s->ended && frame_write(&s->peer, kind, head, bulk_size)) s->ended = 1;
  return s->ended ? -1 : 0;
}

/* Tells the client of the error that is set. */
static void answer_error(session *s) {
  sterna_error *error = sterna_take_error();
  const char *backtrace = error && error->backtrace.data ? error->backtrace.data : "";
  const char *kind = error ? error->kind.data : "RuntimeError";
  const char *message = error ? error->message.data : "the function failed and does not say why";
  callback_flush(s);
  if (!s->ended && frame_write_error(&s->peer, kind, message, backtrace, s->most_head)) s->ended = 1;
  sterna_release(error);
}

static int encode_answer(session *s, const sterna_any *value, writer *head) {
  if (value_encode(s, value, 0, head)) return -1;
  if (head->failed) return sterna_set_error("MemoryError", "no memory for the result");
  if (head->size > s->most_head)
    return sterna_set_errorf("ValueError", "the result takes %zu bytes, the client takes %zu at most; "
                             "return it as an array", head->size, s->most_head);
  return 0;
}

void session_answer(session *s, int failed, const sterna_any *value) {
  writer head = {NULL, 0, 0, 0};
  handles_begin(&s->owned);
  if (!failed && (failed = encode_answer(s, value, &head))) handles_undo(&s->owned);
  if (failed)
    answer_error(s);
  else
    session_send(s, FRAME_RETURN, &head, 0);
  writer_free(&head);
}

void session_end(session *s) {
  answer_error(s);
  s->ended = 1;
}

static void refuse_form(session *s, const char *what) {
  sterna_set_error("RPCProtocolError", what);
  session_end(s);
}

/* ---- calls ---- */

static int find_called(session *s, const sterna_any *called, sterna_function **out) {
  sterna_bytes name;
  if (called->type_index == STERNA_FUNCTION_OBJECT) {
    *out = (sterna_function *)called->v_obj;
    sterna_retain(*out);
    return 0;
  }
  if (sterna_as_string(called, &name) || builtin_get_function(s, name, out)) return -1;
  if (*out) return 0;
  return sterna_set_errorf("AttributeError", "the server has no function '%.*s'",
                           name.size < 200 ? (int)name.size : 200, name.data);
}

static int run_call(session *s, const sterna_any *values, int32_t count, sterna_any *ret) {
  sterna_function *function = NULL;
  if (s->nested >= MOST_NESTED_CALLS)
    return sterna_set_errorf("RecursionError", "more than %d calls between machines nest", MOST_NESTED_CALLS);
  if (find_called(s, &values[0], &function)) return -1;
  s->nested++;
  int failed = sterna_function_call(function, values + 1, count - 1, ret);
  s->nested--;
  sterna_release(function);
  return failed;
}

static void serve_call(session *s, reader *head, int64_t count) {
  sterna_any *values = calloc((size_t)count, sizeof *values), result = sterna_any_none();
  int64_t made = 0;
  int fits = values && count <= INT32_MAX;
  int failed = fits ? 0 : sterna_set_error("MemoryError", "no memory for the arguments");
  while (!failed && made < count) {
    failed = value_decode(s, head, &values[made]);
    made += !failed;
  }
  if (!failed) failed = run_call(s, values, (int32_t)count, &result);
  while (made) sterna_any_release(&values[--made]);
  free(values);
  session_answer(s, failed, &result);
  sterna_any_release(&result);
}

static void serve_free(session *s, reader *head) {
  while (head->at < head->end) {
    get_number(head, 1);
    handles_free(&s->owned, get_number(head, 8));
  }
}

/* ---- frames ---- */

static int all_are(const frame *f, int tag) {
  for (size_t at = 0; at < f->head_size; at += 9)
    if (f->head[at] != tag) return 0;
  return 1;
}

/* Whether the values of a head are those that its kind says. */
static int fits_kind(const frame *f, const uint8_t *tags, int64_t count) {
  switch (f->kind) {
    case FRAME_CALL:
      return count > 0 && (tags[0] == TAG_STR || (tags[0] == TAG_FUNCTION && f->head[1] == OWNED_BY_RECEIVER));
    case FRAME_RETURN: return count == 1;
    case FRAME_EXCEPTION: return count == 1 && tags[0] == TAG_ERROR;
    case FRAME_ALLOC: return count == 3 && !memcmp(tags, "\x08\x07\x09", 3); /* DEVICE, DTYPE, SHAPE */
    case FRAME_COPY_TO: return count == 2 && all_are(f, TAG_INT);
    case FRAME_COPY_FROM: return count == 3 && all_are(f, TAG_INT);
    case FRAME_COPY_WITHIN: return count == 5 && all_are(f, TAG_INT);
    case FRAME_FREE: return all_are(f, TAG_INT);
    case FRAME_INIT: return 1;
    default: return count == 0;
  }
}

static int check_frame(const frame *f, int64_t *count) {
  uint8_t tags[4] = {0, 0, 0, 0};
  *count = check_form(f->head, f->head_size, tags, 4);
  int has_bulk = f->kind == FRAME_ALLOC || f->kind == FRAME_COPY_TO;
  return *count >= 0 && fits_kind(f, tags, *count) && (has_bulk || !f->bulk_size);
}

static void serve_request(session *s, const frame *f, int64_t count) {
  const sterna_any none = sterna_any_none();
  reader head = {f->head, f->head + f->head_size, 0};
  switch (f->kind) {
    case FRAME_CALL: serve_call(s, &head, count); break;
    case FRAME_FREE: serve_free(s, &head); break;
    case FRAME_PING: session_answer(s, 0, &none); break;
    case FRAME_CLOSE: s->ended = 1; break;
    case FRAME_INIT:
      sterna_set_error("RPCError", "this server opens no sessions behind its own; the one in Python does");
      session_answer(s, -1, NULL);
      break;
    default: arrays_serve(s, f, &head);
  }
}

/* Takes the answer that a request of ours waits for. */
static int take_answer(session *s, const frame *f, sterna_any *answer) {
  reader head = {f->head, f->head + f->head_size, 0};
  sterna_any value = sterna_any_none();
  if (value_decode(s, &head, &value)) return -1;
  if (f->kind == FRAME_RETURN) {
    *answer = value;
    return 0;
  }
  sterna_raise((sterna_error *)value.v_obj);
  sterna_any_release(&value);
  return -1;
}

/* Serves until the answer comes, or, when none is waited for, until the connection ends. */
static int serve(session *s, sterna_any *answer) {
  while (!s->ended) {
    frame f;
    int64_t count = 0;
    frame_result got = frame_read(&s->peer, &f);
    if (got == FRAME_MALFORMED) session_end(s);
    if (got != FRAME_READ) s->ended = 1;
    if (got != FRAME_READ) break;
    int is_answer = f.kind == FRAME_RETURN || f.kind == FRAME_EXCEPTION;
    if (!check_frame(&f, &count))
      refuse_form(s, "the client sent a frame whose head or bulk is not what its kind calls for");
    else if (is_answer && !answer)
      refuse_form(s, "the client sent an answer that nobody waits for");
    else if (!is_answer)
      serve_request(s, &f, count);
    int taken = is_answer && !s->ended ? take_answer(s, &f, answer) : 1;
    frame_free(&f);
    if (taken <= 0) return taken;
  }
  return answer ? sterna_set_error("ConnectionError", "the client is gone") : 0;
}

int session_ask(session *s, int kind, const writer *head, sterna_any *answer) {
  if (head->size > s->most_head)
    return sterna_set_errorf("ValueError", "the arguments take %zu bytes, the client takes %zu at most",
                             head->size, s->most_head);
  if (session_send(s, kind, head, 0)) return sterna_set_error("ConnectionError", "the client is gone");
  return serve(s, answer);
}

int session_run(stream *peer, const workspace *files, size_t most_head, const session_limits *limits) {
  session s = {.peer = *peer, .files = files, .most_head = most_head, .array_limit = limits->memory_bytes,
               .disk_limit = limits->file_bytes, .thread = pthread_self()};
  for (int i = 0; i < MOST_UPLOADS; i++) s.uploads[i] = (upload){-1, 0, sterna_any_none()};
  int failed = serve(&s, NULL);
  for (int i = 0; i < MOST_UPLOADS; i++) {
    if (s.uploads[i].file >= 0) close(s.uploads[i].file);
    sterna_any_release(&s.uploads[i].name);
  }
  handles_end(&s.owned);
  sterna_shutdown();
  callback_flush(&s);
  return failed;
}

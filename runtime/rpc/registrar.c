/* The process that keeps a tracker informed: however slow that is, the server does not wait for it. */
#include "registrar.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "frame.h"
#include "listen.h"

static const double answer_seconds = 10;
enum { UPDATE_MS = 2000 };

typedef struct {
  const server_options *options;
  int port;
  stream server, tracker; /* tracker.in is -1 while there is no connection */
  registration now;
  int has_complained;
} registrar;

static void complain(registrar *r) {
  if (!r->has_complained)
    fprintf(stderr, "rpc: no tracker at %s:%d: %s; trying again\n", r->options->tracker_host,
            r->options->tracker_port, sterna_last_error());
  r->has_complained = 1;
}

static int reach_tracker(registrar *r) {
  int file = -1;
  if (r->tracker.in >= 0) return 0;
  uint64_t deadline = clock_after(answer_seconds);
  if (connect_to(r->options->tracker_host, r->options->tracker_port, deadline, &file)) return -1;
  if (stream_open(&r->tracker, file, file)) return -1;
  r->tracker.deadline = deadline;
  return handshake_ask(&r->tracker, options_secret(r->options), SERVICE_TRACKER, r->options->key);
}

static int send_update(registrar *r) {
  writer head = {NULL, 0, 0, 0};
  put_str(&head, "tracker.update");
  put_str(&head, r->options->key);
  put_str(&head, r->options->custom_address);
  put_tagged_int(&head, r->port);
  put_str(&head, r->now.match_key);
  put_str(&head, r->now.holder);
  r->tracker.deadline = clock_after(answer_seconds);
  int failed = frame_write(&r->tracker, FRAME_CALL, &head, 0);
  writer_free(&head);
  return failed;
}

/* 1: the match key is good, 0: it is not, -1: the tracker has not answered. */
static int take_answer_of_tracker(registrar *r) {
  frame f;
  uint8_t tag = TAG_NONE;
  frame_result got = frame_read(&r->tracker, &f);
  if (got == FRAME_END) return sterna_set_error("ConnectionError", "it has closed the connection");
  if (got != FRAME_READ) return -1;
  int64_t count = check_form(f.head, f.head_size, &tag, 1);
  frame_free(&f);
  if (f.kind != FRAME_RETURN || count != 1 || (tag != TAG_TRUE && tag != TAG_FALSE))
    return sterna_set_error("RPCError", "it does not take this server");
  return tag == TAG_TRUE;
}

static int update(registrar *r) {
  if (reach_tracker(r) || send_update(r)) return -1;
  int is_good = take_answer_of_tracker(r);
  if (is_good == 0 && stream_write(&r->server, "N", 1)) return 0; /* the server is gone, as will be seen */
  return is_good < 0 ? -1 : 0;
}

void registrar_run(int server, const server_options *o, int port) {
  registrar r = {.options = o, .port = port, .tracker = {-1, -1, NO_DEADLINE}};
  if (stream_open(&r.server, server, server)) return;
  for (;;) {
    struct pollfd news = {server, POLLIN, 0};
    if (poll(&news, 1, UPDATE_MS) > 0 && stream_read(&r.server, &r.now, sizeof r.now)) break;
    if (!r.now.match_key[0] && !r.now.holder[0]) continue;
    if (update(&r)) {
      complain(&r);
      stream_close(&r.tracker);
    } else {
      r.has_complained = 0;
    }
  }
  stream_close(&r.tracker);
}

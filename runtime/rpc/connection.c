/* One connection: handshake, session, and what is left to do when it is over. */
#include "connection.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "listen.h"
#include "session.h"
#include "supervise.h"

static const double handshake_seconds = 10, farewell_seconds = 2;

typedef struct {
  server_options *options;
  int server; /* -1: none */
  stream peer;
  size_t most_head;
  workspace files;
} connection;

/* The shorter of the server's limit and the client's, where 0 is none. */
static uint32_t shorter(double seconds, uint32_t wanted_ms) {
  uint32_t own_ms = (uint32_t)(seconds * 1000);
  return !own_ms || (wanted_ms && wanted_ms < own_ms) ? wanted_ms : own_ms;
}

static void decide(void *context, const client_hello *hello, server_verdict *verdict) {
  connection *c = context;
  admission asked;
  uint8_t answer = STATUS_BUSY;
  stream server = {c->server, c->server, c->peer.deadline};
  memset(&asked, 0, sizeof asked);
  memcpy(asked.key, hello->key, strlen(hello->key));
  if (stream_write(&server, &asked, sizeof asked) || stream_read(&server, &answer, 1)) answer = STATUS_BUSY;
  verdict->status = answer;
  verdict->timeout_ms = shorter(c->options->session_seconds, hello->timeout_ms);
  verdict->array_limit = c->options->limits.memory_bytes;
  snprintf(verdict->name, sizeof verdict->name, "%s", c->options->key);
}

static int run_session(void *data) {
  connection *c = data;
  if (c->server >= 0) close(c->server);
  memset(c->options->secret, 0, sizeof c->options->secret); /* the client's code may look around */
  if (fchdir(c->files.folder)) return -1;
  return session_run(&c->peer, &c->files, c->most_head, &c->options->limits);
}

/* Tells a client that still listens why its session is over. */
static void say_farewell(connection *c, session_ending end, int killed_by, double seconds) {
  char text[200];
  if (end == SESSION_ENDED) return;
  c->peer.deadline = clock_after(farewell_seconds);
  if (end == SESSION_TIMED_OUT) {
    snprintf(text, sizeof text, "the session took longer than its limit of %g seconds", seconds);
    frame_write_error(&c->peer, "RPCSessionTimeoutError", text, "", c->most_head);
  } else {
    snprintf(text, sizeof text, "the session's process on the server was ended by signal %d (%s)", killed_by,
             strsignal(killed_by));
    frame_write_error(&c->peer, "RPCError", text, "", c->most_head);
  }
}

static int run_supervised(connection *c, uint32_t timeout_ms) {
  session_ending end = SESSION_ENDED;
  int killed_by = 0;
  if (workspace_create(&c->files)) return -1;
  c->peer.deadline = NO_DEADLINE;
  uint64_t deadline = clock_after(timeout_ms * 1e-3);
  int failed = supervise(run_session, c, &c->options->limits, c->peer.in, deadline, &end, &killed_by);
  workspace_remove(&c->files);
  if (!failed) say_farewell(c, end, killed_by, timeout_ms * 1e-3);
  return failed;
}

static int serve_client(connection *c) {
  client_hello hello;
  server_verdict verdict;
  c->peer.deadline = clock_after(handshake_seconds);
  if (handshake_serve(&c->peer, options_secret(c->options), decide, c, &hello, &verdict)) return -1;
  c->most_head = hello.most_head;
  return run_supervised(c, verdict.timeout_ms);
}

int connection_serve(int socket, int server, server_options *o) {
  connection c = {.options = o, .server = server};
  if (stream_open(&c.peer, socket, socket)) return -1;
  int failed = serve_client(&c);
  stream_close(&c.peer);
  return failed;
}

/* Answers the proxy until a client has come, whose bytes follow the last answer. */
static int await_client(stream *proxy) {
  writer none = {NULL, 0, 0, 0}, begin = {NULL, 0, 0, 0};
  int has_come = 0, failed = 0;
  put_number(&none, TAG_NONE, 1);
  put_str(&begin, "proxy.begin");
  while (!has_come && !failed) {
    frame f;
    proxy->deadline = NO_DEADLINE;
    frame_result got = frame_read(proxy, &f);
    if (got == FRAME_END) sterna_set_error("ConnectionError", "the proxy has closed the connection");
    failed = got != FRAME_READ;
    if (failed) break;
    has_come = f.kind == FRAME_CALL && f.head_size == begin.size && !memcmp(f.head, begin.data, begin.size);
    if (!has_come && f.kind != FRAME_PING)
      failed = sterna_set_error("RPCProtocolError", "the proxy sent a frame of another kind");
    frame_free(&f);
    proxy->deadline = clock_after(handshake_seconds);
    if (!failed) failed = frame_write(proxy, FRAME_RETURN, &none, 0);
  }
  writer_free(&none);
  writer_free(&begin);
  return failed ? -1 : 0;
}

int connection_serve_at_proxy(int server, server_options *o) {
  connection c = {.options = o, .server = server};
  int socket = -1;
  uint64_t deadline = clock_after(handshake_seconds);
  if (connect_to(o->host, o->port, deadline, &socket)) return -1;
  listen_keep_alive(socket);
  if (stream_open(&c.peer, socket, socket)) return -1;
  c.peer.deadline = deadline;
  int failed = handshake_ask(&c.peer, options_secret(o), SERVICE_PROXY, o->key) || await_client(&c.peer) ||
               serve_client(&c);
  stream_close(&c.peer);
  return failed ? -1 : 0;
}

int connection_serve_pipes(int in, int out, server_options *o) {
  connection c = {.options = o, .server = -1, .most_head = MOST_HEAD};
  if (stream_open(&c.peer, in, out)) return -1;
  return run_supervised(&c, shorter(o->session_seconds, 0));
}

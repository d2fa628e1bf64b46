/* The process that listens. It never talks to clients itself, and waits for nobody. */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "connection.h"
#include "listen.h"
#include "registrar.h"

/* Beside sessions, this many connections may be in their handshake at once, and so many of one address.
   Whoever comes then takes the place of the oldest, which has had its grace. */
enum { MOST_HANDSHAKES = 16, MOST_HANDSHAKES_EACH = 8, MOST_CONNECTIONS = 1024, TICK_MS = 1000 };
static const double handshake_grace_seconds = 1;
static const double proxy_retry_seconds = 1;
enum { LISTENER, REGISTRAR, FIRST_CONNECTION };

typedef struct {
  pid_t process;
  int is_session; /* its client was let in */
  int is_waiting; /* at a proxy, for its client */
  int is_half_open; /* it came by itself and has not proved anything */
  uint64_t grace_ends;
  char host[46], peer[64];
} client;

typedef struct {
  server_options *options;
  struct pollfd files[FIRST_CONNECTION + MOST_CONNECTIONS];
  client clients[MOST_CONNECTIONS];
  int count, sessions, port;
  int door; /* a connection that waits for a place, or -1; its client is the one behind the last */
  registration told; /* to the tracker */
  int is_proxy_lost;
  uint64_t next_try; /* to reach the proxy */
} server;

static volatile sig_atomic_t is_ending;

static void request_end(int number) {
  (void)number;
  is_ending = 1;
}

static void tell(const server *v, const char *format, const char *name) {
  if (!v->options->is_silent) fprintf(stderr, format, name);
}

/* ---- the tracker ---- */

static void tell_registrar(server *v) {
  if (v->files[REGISTRAR].fd < 0) return;
  const char *data = (const char *)&v->told; /* small enough to go at once */
  if (write(v->files[REGISTRAR].fd, data, sizeof v->told) != (ssize_t)sizeof v->told) is_ending = 1;
}

/* A match key is good for one session. */
static int renew_match_key(server *v) {
  uint8_t noise[16];
  char digits[33];
  if (random_bytes(noise, sizeof noise)) return -1;
  for (int i = 0; i < 16; i++) snprintf(digits + 2 * i, 3, "%02x", noise[i]);
  memset(&v->told, 0, sizeof v->told);
  snprintf(v->told.match_key, sizeof v->told.match_key, "%.127s:%s", v->options->key, digits);
  tell_registrar(v);
  return 0;
}

/* Leaves this process's sockets to it: a child has only those that it needs. */
static void close_all(server *v) {
  if (v->door >= 0) close(v->door);
  for (int i = 0; i < FIRST_CONNECTION + v->count; i++)
    if (v->files[i].fd >= 0) close(v->files[i].fd);
}

/* A process with a socket to it. In the new process it gives 0, in this one the process. */
static pid_t start_process(server *v, int *talk) {
  int ends[2];
  pid_t self = getpid();
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return -1;
  fflush(NULL);
  pid_t process = fork();
  if (process == 0) {
    signal(SIGINT, SIG_IGN); /* from a terminal it reaches all; the server passes on what is meant */
    signal(SIGTERM, SIG_DFL);
    follow_parent(self, SIGTERM);
    close_all(v);
  }
  close(ends[process == 0 ? 0 : 1]);
  *talk = ends[process == 0 ? 1 : 0];
  if (process < 0) close(*talk);
  return process;
}

static int start_registrar(server *v) {
  int talk = -1;
  if (!*v->options->tracker_host) return 0;
  pid_t process = start_process(v, &talk);
  if (process < 0) return sterna_set_errorf("OSError", "no process for the tracker: %s", strerror(errno));
  if (process == 0) {
    registrar_run(talk, v->options, v->port);
    exit(0);
  }
  v->files[REGISTRAR].fd = talk;
  return renew_match_key(v);
}

static void hear_registrar(server *v) {
  char asked[16];
  ssize_t got = read(v->files[REGISTRAR].fd, asked, sizeof asked);
  if (got > 0) {
    if (!v->told.holder[0]) renew_match_key(v);
  } else if (got == 0) {
    fprintf(stderr, "rpc: the process that talks to the tracker has ended\n");
    is_ending = 1;
  }
}

/* ---- clients ---- */

static void describe_peer(int socket, client *out) {
  struct sockaddr_storage address;
  socklen_t size = sizeof address;
  char port[8] = "?";
  snprintf(out->host, sizeof out->host, "?");
  if (!getpeername(socket, (struct sockaddr *)&address, &size))
    getnameinfo((struct sockaddr *)&address, size, out->host, sizeof out->host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  snprintf(out->peer, sizeof out->peer, "%s:%s", out->host, port);
}

/* The end of a connection's process. */
static void leave(const server *v, const char *peer, int failed) {
  if (failed && !v->options->is_silent && !v->is_proxy_lost)
    fprintf(stderr, "rpc: %s: %s\n", peer, sterna_last_error());
  sterna_shutdown();
  exit(0);
}

/* Remembers the process of the connection that was described last. */
static void enlist(server *v, pid_t process, int talk) {
  client *c = &v->clients[v->count];
  if (process < 0) {
    fprintf(stderr, "rpc: no process for %s: %s\n", c->peer, strerror(errno));
    return;
  }
  c->process = process;
  v->files[FIRST_CONNECTION + v->count++] = (struct pollfd){talk, POLLIN, 0};
}

static void welcome(server *v) {
  int on = 1, socket = accept(v->files[LISTENER].fd, NULL, NULL);
  if (socket < 0) return;
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  listen_keep_alive(socket);
  v->door = socket;
}

/* The oldest connection that must go before one more of a host, or NULL. */
static client *in_the_way(server *v, const char *host) {
  client *oldest = NULL, *oldest_of_host = NULL;
  int all = 0, of_host = 0;
  for (int i = 0; i < v->count; i++) {
    client *c = &v->clients[i];
    if (!c->is_half_open) continue;
    all++;
    if (!oldest || c->grace_ends < oldest->grace_ends) oldest = c;
    if (strcmp(c->host, host)) continue;
    of_host++;
    if (!oldest_of_host || c->grace_ends < oldest_of_host->grace_ends) oldest_of_host = c;
  }
  if (of_host >= MOST_HANDSHAKES_EACH) return oldest_of_host;
  return all >= MOST_HANDSHAKES ? oldest : NULL;
}

/* Begins with who waits at the door as soon as there is a place; milliseconds until then at most. */
static int let_in(server *v) {
  int talk = -1;
  client c = {.is_half_open = 1, .grace_ends = clock_after(handshake_grace_seconds)}, *old;
  describe_peer(v->door, &c);
  while ((old = in_the_way(v, c.host)) != NULL) {
    uint64_t now = clock_now();
    if (now < old->grace_ends) return (int)((old->grace_ends - now) / 1000000) + 1;
    old->is_half_open = 0; /* it has started nothing and holds nothing that would be left */
    kill(old->process, SIGKILL);
  }
  int socket = v->door;
  v->door = -1;
  v->clients[v->count] = c;
  pid_t process = start_process(v, &talk);
  if (process == 0) leave(v, c.peer, connection_serve(socket, talk, v->options));
  close(socket);
  enlist(v, process, talk);
  return TICK_MS;
}

/* One process waits at the proxy, as long as there is room for another session. */
static void wait_at_proxy(server *v) {
  int talk = -1;
  for (int i = 0; i < v->count; i++)
    if (v->clients[i].is_waiting) return;
  if (v->sessions >= v->options->sessions || clock_now() < v->next_try || v->count == MOST_CONNECTIONS) return;
  client *c = &v->clients[v->count];
  *c = (client){.is_waiting = 1, .peer = "a client of the proxy"};
  pid_t process = start_process(v, &talk);
  if (process == 0) leave(v, "the proxy", connection_serve_at_proxy(talk, v->options));
  enlist(v, process, talk);
}

static int decide_on(const server *v, const char *key) {
  const server_options *o = v->options;
  const char *match_key = v->told.match_key;
  if (*o->tracker_host) return *match_key && !strcmp(key, match_key) ? STATUS_ACCEPTED : STATUS_WRONG_KEY;
  if (*o->key && strcmp(key, o->key)) return STATUS_WRONG_KEY;
  return v->sessions < o->sessions ? STATUS_ACCEPTED : STATUS_BUSY;
}

static int admit(server *v, client *c, admission *asked) {
  asked->key[MOST_KEY] = 0;
  v->is_proxy_lost = c->is_waiting = c->is_half_open = 0;
  int status = decide_on(v, asked->key);
  if (status != STATUS_ACCEPTED) return status;
  c->is_session = 1;
  v->sessions++;
  tell(v, "rpc: session of %s begins\n", c->peer);
  memset(&v->told, 0, sizeof v->told);
  snprintf(v->told.holder, sizeof v->told.holder, "%s", c->peer);
  tell_registrar(v);
  return STATUS_ACCEPTED;
}

static void forget_client(server *v, int index) {
  client *c = &v->clients[index];
  int was_session = c->is_session;
  close(v->files[FIRST_CONNECTION + index].fd);
  waitpid(c->process, NULL, 0);
  if (c->is_waiting) {
    v->is_proxy_lost = 1;
    v->next_try = clock_after(proxy_retry_seconds);
  }
  if (was_session) tell(v, "rpc: session of %s has ended\n", c->peer);
  v->count--;
  *c = v->clients[v->count];
  v->files[FIRST_CONNECTION + index] = v->files[FIRST_CONNECTION + v->count];
  v->sessions -= was_session;
  if (was_session && *v->options->tracker_host && renew_match_key(v)) is_ending = 1;
}

/* A connection's process asks whether to let its client in, or has ended. */
static void hear_client(server *v, int index) {
  admission asked;
  int talk = v->files[FIRST_CONNECTION + index].fd;
  ssize_t got = read(talk, &asked, sizeof asked);
  if (got != (ssize_t)sizeof asked) {
    forget_client(v, index);
    return;
  }
  uint8_t answer = (uint8_t)admit(v, &v->clients[index], &asked);
  if (write(talk, &answer, 1) != 1) forget_client(v, index);
}

static void end_clients(server *v) {
  for (int i = 0; i < v->count; i++) kill(v->clients[i].process, SIGTERM);
  for (int i = 0; i < v->count; i++) waitpid(v->clients[i].process, NULL, 0);
}

static void prepare_signals(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = request_end;
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  signal(SIGPIPE, SIG_IGN);
}

static int open_listener(server *v) {
  const server_options *o = v->options;
  if (listen_at(o->host, o->port, o->port_end, &v->port, &v->files[LISTENER].fd)) return -1;
  fcntl(v->files[LISTENER].fd, F_SETFL, O_NONBLOCK);
  return 0;
}

int server_run(server_options *o) {
  static server v;
  char place[300];
  v.options = o;
  prepare_signals();
  v.files[REGISTRAR] = (struct pollfd){-1, POLLIN, 0};
  v.files[LISTENER] = (struct pollfd){-1, POLLIN, 0};
  v.port = o->port;
  v.door = -1;
  if (!o->is_behind_proxy && open_listener(&v)) return -1;
  if (start_registrar(&v)) return -1;
  snprintf(place, sizeof place, "%.200s:%d", o->host, v.port);
  tell(&v, o->is_behind_proxy ? "rpc: waits at the proxy %s\n" : "rpc: listens on %s\n", place);
  while (!is_ending) {
    int wait_ms = v.door >= 0 && v.count < MOST_CONNECTIONS ? let_in(&v) : TICK_MS;
    v.files[LISTENER].events = v.door < 0 ? POLLIN : 0;
    if (o->is_behind_proxy) wait_at_proxy(&v);
    if (poll(v.files, (nfds_t)(FIRST_CONNECTION + v.count), wait_ms) <= 0) continue;
    for (int i = v.count - 1; i >= 0; i--)
      if (v.files[FIRST_CONNECTION + i].revents) hear_client(&v, i);
    if (v.files[REGISTRAR].revents) hear_registrar(&v);
    if (v.files[LISTENER].revents & POLLIN) welcome(&v);
  }
  end_clients(&v);
  close_all(&v);
  return 0;
}

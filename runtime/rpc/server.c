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

/* Beside sessions, this many connections may be in their handshake at once. */
enum { MOST_HANDSHAKES = 16, MOST_CONNECTIONS = 1024 };
enum { LISTENER, REGISTRAR, FIRST_CONNECTION };

typedef struct {
  pid_t process;
  int is_session; /* its client was let in */
  char peer[64];
} client;

typedef struct {
  server_options *options;
  struct pollfd files[FIRST_CONNECTION + MOST_CONNECTIONS];
  client clients[MOST_CONNECTIONS];
  int count, sessions, port;
  registration told; /* to the tracker */
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

static void describe_peer(int socket, char out[64]) {
  struct sockaddr_storage address;
  socklen_t size = sizeof address;
  char host[46] = "?", port[8] = "?";
  if (!getpeername(socket, (struct sockaddr *)&address, &size))
    getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  snprintf(out, 64, "%s:%s", host, port);
}

static void set_tcp(int socket, int option, int value) {
  setsockopt(socket, IPPROTO_TCP, option, &value, sizeof value);
}

/* A peer that is gone without a word is found out within half a minute. */
static void prepare_socket(int socket) {
  int on = 1;
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  set_tcp(socket, TCP_NODELAY, 1);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#if defined(TCP_KEEPIDLE)
  set_tcp(socket, TCP_KEEPIDLE, 10);
#endif
#if defined(TCP_KEEPINTVL) && defined(TCP_KEEPCNT)
  set_tcp(socket, TCP_KEEPINTVL, 5);
  set_tcp(socket, TCP_KEEPCNT, 3);
#endif
#if defined(TCP_USER_TIMEOUT)
  set_tcp(socket, TCP_USER_TIMEOUT, 30000);
#endif
}

static void welcome(server *v) {
  int talk = -1, socket = accept(v->files[LISTENER].fd, NULL, NULL);
  if (socket < 0) return;
  prepare_socket(socket);
  client *c = &v->clients[v->count];
  describe_peer(socket, c->peer);
  pid_t process = start_process(v, &talk);
  if (process == 0) {
    int failed = connection_serve(socket, talk, v->options);
    if (failed && !v->options->is_silent) fprintf(stderr, "rpc: %s: %s\n", c->peer, sterna_last_error());
    sterna_shutdown();
    exit(0);
  }
  close(socket);
  if (process < 0) {
    fprintf(stderr, "rpc: no process for %s: %s\n", c->peer, strerror(errno));
    return;
  }
  c->process = process;
  c->is_session = 0;
  v->files[FIRST_CONNECTION + v->count++] = (struct pollfd){talk, POLLIN, 0};
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

int server_run(server_options *o) {
  static server v;
  char place[300];
  v.options = o;
  prepare_signals();
  v.files[REGISTRAR] = (struct pollfd){-1, POLLIN, 0};
  v.files[LISTENER] = (struct pollfd){-1, POLLIN, 0};
  if (listen_at(o->host, o->port, o->port_end, &v.port, &v.files[LISTENER].fd)) return -1;
  fcntl(v.files[LISTENER].fd, F_SETFL, O_NONBLOCK);
  if (start_registrar(&v)) return -1;
  snprintf(place, sizeof place, "%.200s:%d", o->host, v.port);
  tell(&v, "rpc: listens on %s\n", place);
  while (!is_ending) {
    int has_room = v.count - v.sessions < MOST_HANDSHAKES && v.count < MOST_CONNECTIONS;
    v.files[LISTENER].events = has_room ? POLLIN : 0;
    if (poll(v.files, (nfds_t)(FIRST_CONNECTION + v.count), 1000) <= 0) continue;
    for (int i = v.count - 1; i >= 0; i--)
      if (v.files[FIRST_CONNECTION + i].revents) hear_client(&v, i);
    if (v.files[REGISTRAR].revents) hear_registrar(&v);
    if (v.files[LISTENER].revents & POLLIN) welcome(&v);
  }
  end_clients(&v);
  close_all(&v);
  return 0;
}

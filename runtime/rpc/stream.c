/* Bytes to and from a peer by poll, so that no peer can hold this process longer than its deadline. */
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

uint64_t clock_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_after(double seconds) {
  return seconds > 0 && seconds < 1e9 ? clock_now() + (uint64_t)(seconds * 1e9) : NO_DEADLINE;
}

static int make_waitless(int file) {
  int flags = fcntl(file, F_GETFL);
  return flags < 0 || fcntl(file, F_SETFL, flags | O_NONBLOCK) ? -1 : 0;
}

int stream_open(stream *s, int in, int out) {
  *s = (stream){in, out, NO_DEADLINE};
  if (make_waitless(in) || make_waitless(out))
    return sterna_set_errorf("OSError", "the connection cannot be used: %s", strerror(errno));
  return 0;
}

static int peer_is_gone(void) {
  return sterna_set_error("ConnectionError", "the peer has closed the connection");
}

static int wait_for(const stream *s, int file, short events) {
  struct pollfd entry = {file, events, 0};
  for (;;) {
    uint64_t now = clock_now();
    if (now >= s->deadline) return sterna_set_error("TimeoutError", "the peer took too long");
    uint64_t left = s->deadline == NO_DEADLINE ? NO_DEADLINE : (s->deadline - now) / 1000000 + 1;
    int ready = poll(&entry, 1, left > 1000000 ? (s->deadline == NO_DEADLINE ? -1 : 1000000) : (int)left);
    if (ready > 0) return 0;
    if (ready < 0 && errno != EINTR)
      return sterna_set_errorf("OSError", "waiting for the peer failed: %s", strerror(errno));
  }
}

/* Whether a read or write that moved nothing is to be tried again; otherwise the error is set. */
static int try_again(const stream *s, int file, short events) {
  if (errno == EINTR) return 1;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return wait_for(s, file, events) == 0;
  peer_is_gone();
  return 0;
}

int stream_wait(stream *s) {
  char first;
  for (;;) {
    ssize_t got = recv(s->in, &first, 1, MSG_PEEK);
    if (got >= 0) return got > 0;
    if (errno == ENOTSOCK) return wait_for(s, s->in, POLLIN) ? -1 : 1; /* a pipe: reading tells */
    if (!try_again(s, s->in, POLLIN)) return -1;
  }
}

int stream_read(stream *s, void *into, size_t size) {
  char *at = into;
  while (size) {
    ssize_t got = read(s->in, at, size);
    if (got == 0) return peer_is_gone();
    if (got < 0 && !try_again(s, s->in, POLLIN)) return -1;
    if (got < 0) continue;
    at += got;
    size -= (size_t)got;
  }
  return 0;
}

int stream_write(stream *s, const void *from, size_t size) {
  const char *at = from;
  while (size) {
    ssize_t put = write(s->out, at, size);
    if (put < 0 && !try_again(s, s->out, POLLOUT)) return -1;
    if (put < 0) continue;
    at += put;
    size -= (size_t)put;
  }
  return 0;
}

void stream_close(stream *s) {
  if (s->in >= 0) close(s->in);
  if (s->out >= 0 && s->out != s->in) close(s->out);
  s->in = s->out = -1;
}

int random_bytes(void *into, size_t size) {
  char *at = into;
  int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  while (file >= 0 && size) {
    ssize_t got = read(file, at, size);
    if (got <= 0 && errno != EINTR) break;
    if (got > 0) at += got, size -= (size_t)got;
  }
  if (file >= 0) close(file);
  return size ? sterna_set_error("OSError", "/dev/urandom gives no random numbers") : 0;
}

/* Bytes to and from a peer, none of it past a deadline. */
#ifndef STERNA_RPC_STREAM_H_
#define STERNA_RPC_STREAM_H_

#include "common.h"

#define NO_DEADLINE UINT64_MAX

INTERNAL uint64_t clock_now(void); /* nanoseconds of a clock that only goes forward */
INTERNAL uint64_t clock_after(double seconds); /* 0 or less: never */

typedef struct {
  int in, out;
  uint64_t deadline;
} stream;

/* Takes over a socket, or two ends of pipes. */
INTERNAL int stream_open(stream *s, int in, int out);
/* All of it or an error: ConnectionError when the peer is gone, TimeoutError at the deadline. */
INTERNAL int stream_read(stream *s, void *into, size_t size);
INTERNAL int stream_write(stream *s, const void *from, size_t size);
/* Waits for the first byte of a message; 1: there is one, 0: the peer has closed, -1: an error. */
INTERNAL int stream_wait(stream *s);
INTERNAL void stream_close(stream *s);

/* Bytes that nobody can guess. */
INTERNAL int random_bytes(void *into, size_t size);

#endif

/* A session's process: what it may use, and its end. */
#ifndef STERNA_RPC_SUPERVISE_H_
#define STERNA_RPC_SUPERVISE_H_

#include "common.h"

#include <sys/types.h>

/* What a session may use; 0: as much as there is. */
typedef struct {
  uint64_t memory_bytes, file_bytes, cpu_seconds;
  int is_default; /* nobody has named memory_bytes: then files that are mapped do not count */
} session_limits;

/* How a session ended. */
typedef enum { SESSION_ENDED, SESSION_CRASHED, SESSION_TIMED_OUT } session_ending;

/* Runs body in a process of its own under the limits, until it ends, the peer of a socket is gone or
   the deadline has come; then ends everything that it has started and that still runs. A crashed one was
   killed_by a signal. */
INTERNAL int supervise(int (*body)(void *data), void *data, const session_limits *limits, int peer,
                       uint64_t deadline, session_ending *end, int *killed_by);

/* Where the system can do it: this process gets the signal when its parent dies. */
INTERNAL void follow_parent(pid_t parent, int with);

#endif

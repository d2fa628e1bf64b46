/*
 * A session's process. Uploaded code may start others and step out of its process group; where the
 * system lets a process adopt its orphaned descendants, none of them outlives the session.
 */
#include "supervise.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "stream.h"

/* A session whose client has gone may finish by itself for so long. */
static const double leaves_within_seconds = 0.3;

#if defined(POLLRDHUP)
enum { FAR_END_CLOSED = POLLRDHUP };
#else
enum { FAR_END_CLOSED = 0 }; /* POLLHUP, which is always watched, has to do */
#endif

static void limit(int resource, uint64_t most) {
  struct rlimit now;
  if (getrlimit(resource, &now)) return;
  if (most < now.rlim_max) now.rlim_max = (rlim_t)most;
  now.rlim_cur = now.rlim_max;
  setrlimit(resource, &now);
}

static void apply(const session_limits *limits) {
  limit(RLIMIT_CORE, 0);
  if (limits->memory_bytes) limit(limits->is_default ? RLIMIT_DATA : RLIMIT_AS, limits->memory_bytes);
  if (limits->file_bytes) limit(RLIMIT_FSIZE, limits->file_bytes);
  if (limits->cpu_seconds) limit(RLIMIT_CPU, limits->cpu_seconds);
  signal(SIGXFSZ, SIG_IGN); /* a file that is too large is an error of the call that writes it */
}

/* Calls visit with every child of this process. */
static void visit_children(void (*visit)(pid_t child)) {
#if defined(__linux__)
  DIR *listing = opendir("/proc");
  if (!listing) return;
  for (struct dirent *entry; (entry = readdir(listing));) {
    char path[64], text[512];
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    snprintf(path, sizeof path, "/proc/%.20s/stat", entry->d_name);
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[size] = 0;
    char *name_end = strrchr(text, ')'); /* the name may hold anything, brackets too */
    int parent = 0;
    if (name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 && parent == getpid())
      visit((pid_t)atol(entry->d_name));
  }
  closedir(listing);
#else
  (void)visit;
#endif
}

static void kill_one(pid_t child) { kill(child, SIGKILL); }

/* Ends the session's group and every process that is left to us when its parent dies. */
static void end_all(pid_t group) {
  kill(-group, SIGKILL);
  for (;;) {
    visit_children(kill_one);
    pid_t done;
    while ((done = waitpid(-1, NULL, WNOHANG)) > 0) continue;
    if (done < 0 && errno == ECHILD) return;
    poll(NULL, 0, 1);
  }
}

static volatile sig_atomic_t is_stopping;

static void request_stop(int number) {
  (void)number;
  is_stopping = 1;
}

/* Sleeps, but no longer than until the far end of a socket is closed; 1 if it is. */
static int doze(int file, int milliseconds) {
  struct pollfd entry = {file, FAR_END_CLOSED, 0};
  return poll(&entry, 1, milliseconds) > 0 && entry.revents & (FAR_END_CLOSED | POLLHUP | POLLERR);
}

/* 1: the process has ended, and status says how; 0: the deadline has come, or somebody ends all of us. */
static int await(pid_t session, int peer, uint64_t deadline, int *status) {
  for (int pause_ms = 1;; pause_ms = pause_ms < 16 ? 2 * pause_ms : 20) {
    pid_t done;
    while ((done = waitpid(-1, status, WNOHANG)) > 0) /* or an orphan that we have adopted */
      if (done == session) return 1;
    if (done < 0 && errno != EINTR) return 1;
    if (is_stopping || clock_now() >= deadline) return 0;
    if (!doze(peer, pause_ms)) continue;
    peer = -1; /* who is to read the results? */
    uint64_t soon = clock_after(leaves_within_seconds);
    if (soon < deadline) deadline = soon;
  }
}

void follow_parent(pid_t parent, int with) {
#if defined(__linux__)
  prctl(PR_SET_PDEATHSIG, with);
  if (getppid() != parent) _exit(1); /* it died before it could be followed */
#else
  (void)parent;
  (void)with;
#endif
}

static void adopt_orphans(void) {
#if defined(__linux__)
  prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
}

int supervise(int (*body)(void *data), void *data, const session_limits *limits, int peer,
              uint64_t deadline, session_ending *end, int *killed_by) {
  pid_t self = getpid();
  int status = 0;
  adopt_orphans();
  signal(SIGTERM, request_stop);
  fflush(NULL);
  pid_t session = fork();
  if (session < 0) return sterna_set_errorf("OSError", "no process for the session: %s", strerror(errno));
  if (session == 0) {
    signal(SIGTERM, SIG_DFL);
    setpgid(0, 0);
    follow_parent(self, SIGKILL);
    apply(limits);
    exit(body(data) ? 1 : 0);
  }
  setpgid(session, session); /* here too: whoever comes first */
  int ended = await(session, peer, deadline, &status);
  end_all(session);
  *killed_by = ended && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  *end = !ended ? SESSION_TIMED_OUT : *killed_by ? SESSION_CRASHED : SESSION_ENDED;
  return 0;
}

/*
 * Long runs ask the host now and then if they are to end: a global function of this name, which fails
 * then. Python's handles signals, so that Ctrl-C ends a loop that does not end by itself.
 */
#if !defined(_WIN32) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* clock_gettime */
#endif
#include "vm.h"

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <time.h>
#endif

/* Milliseconds between two questions, and calls of functions between two looks at the clock. */
enum { PATIENCE = 50, MOST_CALLS = 63 };

static uint64_t milliseconds(void) {
#ifdef _WIN32
  return GetTickCount64();
#else
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
#endif
}

static int ask_host(void) {
  sterna_function *asked = NULL;
  sterna_any ret = sterna_any_none();
  if (sterna_get_global("runtime.vm.check_signals", &asked)) return -1;
  if (!asked) return 0;
  int failed = asked->call(asked, NULL, 0, &ret);
  if (!failed) sterna_any_release(&ret);
  sterna_release(asked);
  return failed ? -1 : 0;
}

int vm_watch_host(vm_watch *w) {
  uint64_t now = milliseconds();
  int is_first = !w->asked;
  w->gap = is_first || now - w->read < PATIENCE / 5 ? w->gap * 2 + 1 : w->gap / 4;
  if (w->gap > MOST_CALLS) w->gap = MOST_CALLS;
  w->left = w->gap;
  w->read = now;
  if (is_first) w->asked = now;
  if (now - w->asked < PATIENCE) return 0;
  w->asked = now;
  return ask_host();
}

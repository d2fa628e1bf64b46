/* How long a parallel region takes that does nothing: prints microseconds, the least of many turns. */
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "sterna.h"

static double now(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int nothing(int32_t task, int32_t tasks, void *data) {
  (void)task;
  (void)tasks;
  (void)data;
  return 0;
}

/* Waits until every thread has come: what it costs to have all of them at work. */
static int meet(int32_t task, int32_t tasks, void *data) {
  atomic_int *arrived = data;
  (void)task;
  atomic_fetch_add(arrived, 1);
  while (atomic_load(arrived) < tasks) {
  }
  return 0;
}

enum { TURNS = 50, REGIONS = 2000 };

int main(void) {
  int32_t threads;
  double best_nothing = 1e9, best_meet = 1e9;
  atomic_int arrived;
  if (sterna_num_threads(&threads)) return puts(sterna_last_error()), 1;
  for (int turn = 0; turn < TURNS; turn++) {
    double start = now();
    for (int i = 0; i < REGIONS; i++)
      if (sterna_parallel(nothing, NULL, threads)) return 1;
    double took = (now() - start) / REGIONS;
    if (took < best_nothing) best_nothing = took;
    start = now();
    for (int i = 0; i < REGIONS; i++) {
      atomic_store(&arrived, 0);
      if (sterna_parallel(meet, &arrived, threads)) return 1;
    }
    took = (now() - start) / REGIONS;
    if (took < best_meet) best_meet = took;
  }
  printf("%d %.3f %.3f\n", (int)threads, best_nothing, best_meet);
  return 0;
}

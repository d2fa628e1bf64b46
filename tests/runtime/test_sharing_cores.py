"""Programs and threads that use the pool at once share the cores without crawling."""

import subprocess
from pathlib import Path

import pytest

from sterna.contrib import cc
from tests.support import clean_environment, require_program

# Runs regions whose tasks are so short that waiting for a sleeping thread would dominate, in one or
# more threads at once, and prints the seconds that all of it took.
PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "sterna.h"

static int work(int32_t task, int32_t tasks, void *data) {
  volatile double sum = 0;
  (void)tasks, (void)data;
  for (int i = 0; i < 2000; i++) sum = sum + i * (task + 1);
  return 0;
}

static void *regions(void *data) {
  int32_t threads;
  (void)data;
  if (sterna_num_threads(&threads)) abort();
  for (int i = 0; i < 20000; i++)
    if (sterna_parallel(work, NULL, threads)) abort();
  return NULL;
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 1;
  pthread_t threads[8];
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, regions, NULL);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  clock_gettime(CLOCK_MONOTONIC, &end);
  double whole = (double)(end.tv_sec - start.tv_sec);
  printf("%f\n", whole + (double)(end.tv_nsec - start.tv_nsec) * 1e-9);
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_program("cc")
    folder = tmp_path_factory.mktemp("sharing")
    (folder / "regions.c").write_text(PROGRAM)
    cc.create_executable(folder / "regions", folder / "regions.c", ["-lpthread"])
    return folder / "regions"


def seconds(program: Path, processes: int, threads: int) -> float:
    """The longest time that any of several processes took."""
    running = [
        subprocess.Popen(
            [program, str(threads)], stdout=subprocess.PIPE, text=True, env=clean_environment()
        )
        for _ in range(processes)
    ]
    return max(float(p.communicate(timeout=120)[0]) for p in running)


@pytest.mark.parametrize(("processes", "threads"), [(2, 1), (4, 1), (1, 2), (1, 4), (2, 2)])
def test_work_takes_its_share_of_time(program: Path, processes: int, threads: int) -> None:
    alone = min(seconds(program, 1, 1) for _ in range(3))
    together = min(seconds(program, processes, threads) for _ in range(2))
    assert together < 4 * processes * threads * alone + 0.5

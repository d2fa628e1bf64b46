"""Sanitized programs are searched for leaks unless they have freed everything."""

import subprocess
from pathlib import Path

import pytest

from tests.support import LEAKS, clean_environment, require_program

PROGRAM = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void allocate(int lost) {
  for (int i = 0; i < 1000; i++) {
    char *block = malloc(10 + (size_t)i), *other = malloc(7);
    memset(block, 1, 10);
    free(other);
    if (!lost || i % 100) free(block);
  }
}
int main(int argc, char **argv) {
  void *kept = malloc(9);
  pid_t child = argc > 2 ? fork() : 0; /* what is lost in the child is the child's */
  int status = 0;
  if (!child) allocate(argc > 1 && !strcmp(argv[1], "lost"));
  if (child) waitpid(child, &status, 0);
  if (argc > 2 && !child) exit(0);
  free(kept);
  return WEXITSTATUS(status);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("leaks")
    (folder / "program.c").write_text(PROGRAM)
    sources = [str(folder / "program.c"), str(LEAKS)]
    words = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g1", "-fsanitize=address", "-pthread"]
    command = [require_program("gcc"), *words, *sources, "-o", str(folder / "program")]
    subprocess.run(command, check=True)
    return folder / "program"


@pytest.mark.parametrize("words", [["lost"], ["lost", "forked"]])
def test_what_is_lost_is_found(program: Path, words: list[str]) -> None:
    environment = clean_environment(ASAN_OPTIONS="detect_leaks=1:exitcode=23",
                                    LSAN_OPTIONS="log_threads=1")  # fmt: skip
    done = subprocess.run(
        [program, *words], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 23, done.stderr
    assert "leaked in 10 allocation(s)" in done.stderr and "Processing thread" in done.stderr


@pytest.mark.parametrize("words", [["freed"], ["freed", "forked"]])
def test_a_program_that_frees_everything_is_not_searched(program: Path, words: list[str]) -> None:
    environment = clean_environment(ASAN_OPTIONS="detect_leaks=1", LSAN_OPTIONS="log_threads=1")
    done = subprocess.run(
        [program, *words], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")  # a search tells of the threads it looks at

#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- checks ---- */

static atomic_int failures;

int check_that(int held, const char *file, int line, const char *what) {
  if (held) return 1;
  fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
  atomic_fetch_add(&failures, 1);
  return 0;
}

int check_failed_call(int result, const char *kind, const char *part, const char *file, int line,
                      const char *what) {
  const char *got_kind = sterna_last_error_kind(), *got = sterna_last_error();
  if (result == -1 && strcmp(kind, got_kind) == 0 && strstr(got, part)) return 1;
  fprintf(stderr, "%s:%d: %s gave %d, %s: %s; expected %s with '%s'\n", file, line, what, result,
          got_kind, got, kind, part);
  atomic_fetch_add(&failures, 1);
  return 0;
}

int check_same_text(const char *a, const char *b, const char *file, int line, const char *what) {
  if (a && b && strcmp(a, b) == 0) return 1;
  fprintf(stderr, "%s:%d: does not hold: %s: '%s' and '%s'\n", file, line, what, a ? a : "(null)",
          b ? b : "(null)");
  atomic_fetch_add(&failures, 1);
  return 0;
}

/* ---- the allocator ---- */

enum { FRONT = 64, TAIL = 16, MAGIC = 0x57e24a };

typedef struct {
  size_t bytes;
  void *base;
  long magic;
} block_header;

static atomic_long live, allocations, fail_at, refused;
static atomic_int fail_forever;

static void *watch_allocate(void *self, size_t bytes, size_t alignment) {
  check(self == &live);
  check(bytes > 0);
  check(alignment >= 1 && (alignment & (alignment - 1)) == 0 && alignment <= FRONT);
  long number = atomic_fetch_add(&allocations, 1) + 1, at = atomic_load(&fail_at);
  if (at && (number == at || (number > at && atomic_load(&fail_forever)))) {
    atomic_fetch_add(&refused, 1);
    return NULL;
  }
  void *base;
  if (bytes > SIZE_MAX / 4 || posix_memalign(&base, FRONT, FRONT + bytes + TAIL)) return NULL;
  char *block = (char *)base + FRONT;
  block_header *header = (block_header *)base;
  *header = (block_header){bytes, base, MAGIC};
  memset(block, 0xcb, bytes < 4096 ? bytes : 4096);
  memset(block + bytes, 0x7a, TAIL);
  atomic_fetch_add(&live, 1);
  return block;
}

static void watch_release(void *self, void *block) {
  check(self == &live);
  block_header *header = (block_header *)((char *)block - FRONT);
  if (!check(header->magic == MAGIC)) abort(); /* never ours, or released twice */
  for (int i = 0; i < TAIL; i++)
    if (!check(((unsigned char *)block)[header->bytes + (size_t)i] == 0x7a)) break;
  header->magic = 0;
  memset(block, 0xdd, header->bytes < 4096 ? header->bytes : 4096);
  atomic_fetch_sub(&live, 1);
  free(header->base);
}

long check_live(void) { return atomic_load(&live); }

long check_allocations(void) { return atomic_load(&allocations); }

void check_fail_at(long n, int forever) {
  atomic_store(&fail_forever, forever);
  atomic_store(&refused, 0);
  atomic_store(&allocations, 0);
  atomic_store(&fail_at, n);
}

int check_has_failed(void) { return atomic_load(&refused) > 0; }

/* ---- files ---- */

static char folder[256];

static void remove_folder(void) {
  DIR *dir = opendir(folder);
  struct dirent *entry;
  while (dir && (entry = readdir(dir))) {
    char *path = check_path(entry->d_name);
    if (unlink(path)) rmdir(path);
    free(path);
  }
  if (dir) closedir(dir);
  rmdir(folder);
}

const char *check_folder(void) {
  if (*folder) return folder;
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%.200s/sterna-test-XXXXXX", base && *base ? base : "/tmp");
  if (!mkdtemp(folder)) {
    perror(folder);
    exit(2);
  }
  return folder;
}

static char *join(const char *a, const char *b) {
  size_t size = strlen(a) + strlen(b) + 2;
  char *path = malloc(size);
  if (!path) exit(2);
  snprintf(path, size, "%s/%s", a, b);
  return path;
}

char *check_path(const char *name) { return join(check_folder(), name); }

char *check_library(const char *name) {
  const char *from = getenv("STERNA_TEST_LIBRARIES");
  if (!from) {
    fprintf(stderr, "STERNA_TEST_LIBRARIES names no folder\n");
    exit(2);
  }
  return join(from, name);
}

static void write_all(int file, const char *path, const void *data, size_t size) {
  if (file < 0 || write(file, data, size) != (ssize_t)size || close(file)) {
    perror(path);
    exit(2);
  }
}

void check_write(const char *path, const void *data, size_t size) {
  write_all(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755), path, data, size);
}

char *check_read(const char *path, size_t *size) {
  struct stat info;
  FILE *file = fopen(path, "rb");
  char *data = NULL;
  if (file && fstat(fileno(file), &info) == 0) data = malloc((size_t)info.st_size + 1);
  if (!data || fread(data, 1, (size_t)info.st_size, file) != (size_t)info.st_size) {
    perror(path);
    exit(2);
  }
  fclose(file);
  *size = (size_t)info.st_size;
  return data;
}

void check_copy(const char *from, const char *to) {
  size_t size;
  char *data = check_read(from, &size), *aside = check_path("aside");
  check_write(aside, data, size);
  if (rename(aside, to)) {
    perror(to);
    exit(2);
  }
  free(aside);
  free(data);
}

void check_overwrite(const char *from, const char *to) {
  size_t size;
  char *data = check_read(from, &size);
  check_sleep(20000); /* longer than a tick of the file system's clock */
  check_write(to, data, size);
  free(data);
}

/* ---- processes and time ---- */

int check_child(int (*body)(void *data), void *data) {
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) return -1000;
  if (child == 0) {
    alarm(60);
    int before = atomic_load(&failures), code = body(data);
    fflush(NULL);
    _exit(code ? code : atomic_load(&failures) != before);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void check_sleep(long microseconds) {
  struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
  nanosleep(&time, NULL);
}

double check_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

uint64_t check_random(void) {
  static uint64_t state = 88172645463325252u; /* xorshift */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

/* ---- running ---- */

static int selected(int argc, char **argv, const char *name) {
  if (argc < 2) return 1;
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], name) == 0) return 1;
  return 0;
}

int check_main(int argc, char **argv, const test_case *cases, size_t count) {
  static const sterna_allocator watching = {&live, watch_allocate, watch_release};
  int ran = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  alarm(240); /* a hang is a failure too */
  if (sterna_set_allocator(&watching)) return 2;
  for (size_t i = 0; i < count; i++) {
    if (!selected(argc, argv, cases[i].name)) continue;
    int before = atomic_load(&failures);
    long live_before = check_live();
    double start = check_seconds();
    printf("%s ...\n", cases[i].name);
    cases[i].run();
    check_fail_at(0, 0);
    sterna_shutdown();
    if (!check(check_live() == live_before))
      fprintf(stderr, "%ld blocks were not given back\n", check_live() - live_before);
    printf("%s %s, %.2f s\n", cases[i].name,
           atomic_load(&failures) == before ? "passed" : "FAILED", check_seconds() - start);
    ran++;
  }
  if (*folder) remove_folder();
  if (!ran) fprintf(stderr, "no such case\n");
  return ran && !atomic_load(&failures) ? 0 : 1;
}

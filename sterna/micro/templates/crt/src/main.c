/* This machine as a platform: text and the byte stream are the standard input and output. */

#define _POSIX_C_SOURCE 199309L /* clock_gettime */

#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "platform.h"
#include "project.h"

void platform_print(const char *text) { fputs(text, stdout); }

void platform_write(const void *bytes, uint32_t size) {
  fwrite(bytes, 1, size, stdout);
  fflush(stdout);
}

int32_t platform_read(void) { return getchar(); }

uint64_t platform_nanoseconds(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nobody needs to save stack here. */
uint32_t platform_stack_bytes(void) { return 0; }

int main(void) {
  const int32_t status = project_run();
  return fflush(stdout) == 0 ? (int)status : 1;
}

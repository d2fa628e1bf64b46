/* Files inside tar archives: a block of 512 bytes says what follows, rounded up to whole blocks. */
#include "tar.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 512, NAME_SIZE = 100, SIZE_AT = 124, SUM_AT = 148, KIND_AT = 156 };

/* A number in octal digits, which blanks and zeros end; -1 when it is none. */
static int64_t octal(const unsigned char *field, int size) {
  int64_t value = 0;
  int i = 0;
  while (i < size && field[i] == ' ') i++;
  int digits = 0;
  for (; i < size && field[i] >= '0' && field[i] <= '7'; i++, digits++) value = value * 8 + (field[i] - '0');
  return digits && (i == size || field[i] == ' ' || field[i] == 0) ? value : -1;
}

static int is_header(const unsigned char *block) {
  int64_t sum = 0;
  for (int i = 0; i < BLOCK; i++) sum += i >= SUM_AT && i < SUM_AT + 8 ? ' ' : block[i];
  return octal(block + SUM_AT, 8) == sum;
}

static int is_zero(const unsigned char *block) {
  for (int i = 0; i < BLOCK; i++)
    if (block[i]) return 0;
  return 1;
}

static int incomplete(void) { return sterna_set_error("ValueError", "it is no complete tar file"); }

int tar_find(int archive, const char *name, uint64_t *offset, uint64_t *size) {
  unsigned char block[BLOCK];
  struct stat info;
  if (fstat(archive, &info)) return incomplete();
  uint64_t whole = (uint64_t)info.st_size, at = 0;
  for (;;) {
    if (at > whole || whole - at < BLOCK) return incomplete();
    if (pread(archive, block, BLOCK, (off_t)at) != BLOCK) return incomplete();
    if (is_zero(block)) return 0;
    int64_t length = octal(block + SIZE_AT, 12);
    at += BLOCK;
    if (!is_header(block) || length < 0 || (uint64_t)length > whole - at) return incomplete();
    int is_file = block[KIND_AT] == '0' || block[KIND_AT] == 0;
    if (is_file && strncmp((const char *)block, name, NAME_SIZE) == 0) {
      *offset = at;
      *size = (uint64_t)length;
      return 1;
    }
    at += ((uint64_t)length + BLOCK - 1) / BLOCK * BLOCK;
  }
}

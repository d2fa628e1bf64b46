/*
 * The seal of a file that Sterna wrote: its last 160 bytes, which are no part of what loaders and
 * linkers read. Checked before the file is mapped, so that a damaged one cannot kill the process.
 *
 *     16  "sterna-sealed-1\n"
 *      8  how many bytes there are before the seal, little-endian
 *     32  their SHA-256
 *     32  the Ed25519 key of who signed them, or zeros      (for loaders that ask for signatures,
 *     64  the signature, or zeros                            as Python's does)
 *      8  "-sterna\n"
 */
#include "internal.h"
#include "sha256.h"

#include <stdio.h>
#include <string.h>

#if defined(__wasm__)

/* A WebAssembly module loads no files, and must not ask its host for any. */
int seal_is_broken(const char *path) {
  (void)path;
  return 0;
}

#else

enum { SEAL_SIZE = 160, SEAL_MARK = 16, SEAL_DIGEST = 24, SEAL_END = 8, SEAL_PIECE = 16384 };

/* 0: the content is what was sealed, or there is no seal. */
static int compare_content(FILE *file) {
  static const char mark[] = "sterna-sealed-1\n-sterna\n";
  uint8_t seal[SEAL_SIZE], piece[SEAL_PIECE];
  if (fseek(file, -SEAL_SIZE, SEEK_END)) return 0; /* too short for a library */
  if (fread(seal, 1, SEAL_SIZE, file) != SEAL_SIZE) return -1;
  int is_begun = !memcmp(seal, mark, SEAL_MARK);
  int is_ended = !memcmp(seal + SEAL_SIZE - SEAL_END, mark + SEAL_MARK, SEAL_END);
  if (!is_begun && !is_ended) return 0;
  uint64_t left = 0;
  for (int i = 7; i >= 0; i--) left = left << 8 | seal[SEAL_MARK + i];
  sha256 hash;
  sha256_begin(&hash);
  fseek(file, 0, SEEK_SET);
  while (left) {
    size_t wanted = left < sizeof piece ? (size_t)left : sizeof piece;
    if (fread(piece, 1, wanted, file) != wanted) return -1;
    sha256_add(&hash, piece, wanted);
    left -= wanted;
  }
  if (fread(piece, 1, sizeof piece, file) != SEAL_SIZE) return -1; /* the seal follows, then nothing */
  sha256_end(&hash, piece);
  return !is_begun || !is_ended || memcmp(piece, seal + SEAL_DIGEST, SHA256_SIZE);
}

int seal_is_broken(const char *path) {
  const char *wish = platform_variable("STERNA_CHECK_SEALS");
  if (wish && *wish == '0') return 0;
  FILE *file = fopen(path, "rb");
  int broken = !file || compare_content(file);
  if (file) fclose(file);
  return broken;
}

#endif

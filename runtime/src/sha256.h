/* SHA-256 (FIPS 180-4). The RPC server, which is a program of its own, compiles it too. */
#ifndef STERNA_SHA256_H_
#define STERNA_SHA256_H_

#include <stddef.h>
#include <stdint.h>

#if defined(STERNA_ONE_FILE)
#define INTERNAL static
#else
#define INTERNAL
#endif

enum { SHA256_SIZE = 32, SHA256_BLOCK = 64 };

typedef struct {
  uint32_t state[8];
  uint64_t size; /* of all that was added, in bytes */
  int instructions; /* whether the processor has some for this */
  uint8_t block[SHA256_BLOCK];
} sha256;

#if !defined(__wasm__) /* where nothing is loaded from files */
INTERNAL void sha256_begin(sha256 *hash);
INTERNAL void sha256_add(sha256 *hash, const void *data, size_t size);
INTERNAL void sha256_end(sha256 *hash, uint8_t out[SHA256_SIZE]);
#endif

#endif

/* SHA-256 and HMAC-SHA-256 (FIPS 180-4, RFC 2104). */
#ifndef STERNA_RPC_SHA256_H_
#define STERNA_RPC_SHA256_H_

#include "common.h"

enum { SHA256_SIZE = 32, SHA256_BLOCK = 64 };

typedef struct {
  uint32_t state[8];
  uint64_t size; /* of all that was added, in bytes */
  uint8_t block[SHA256_BLOCK];
} sha256;

INTERNAL void sha256_begin(sha256 *hash);
INTERNAL void sha256_add(sha256 *hash, const void *data, size_t size);
INTERNAL void sha256_end(sha256 *hash, uint8_t out[SHA256_SIZE]);

/* The code of a message that comes in pieces. */
typedef struct {
  sha256 inner;
  uint8_t outer_key[SHA256_BLOCK];
} hmac_sha256;

INTERNAL void hmac_begin(hmac_sha256 *code, const void *key, size_t key_size);
INTERNAL void hmac_add(hmac_sha256 *code, const void *data, size_t size);
INTERNAL void hmac_end(hmac_sha256 *code, uint8_t out[SHA256_SIZE]);

/* 1 or 0, in a time that does not tell where they differ. */
INTERNAL int secret_equal(const uint8_t *a, const uint8_t *b, size_t size);

#endif

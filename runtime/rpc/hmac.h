/* HMAC-SHA-256 (RFC 2104). */
#ifndef STERNA_RPC_HMAC_H_
#define STERNA_RPC_HMAC_H_

#include "common.h"
#include "sha256.h"

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

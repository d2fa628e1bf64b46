/* SHA-256 and HMAC-SHA-256, word by word as the standards write them down. */
#include "sha256.h"

#include <string.h>

static const uint32_t initial_state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static uint32_t big_endian(const uint8_t *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_big_endian(uint8_t *at, uint32_t word) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(word >> (24 - 8 * i));
}

static void compress(uint32_t state[8], const uint8_t *block) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++) w[i] = big_endian(block + 4 * i);
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
           (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  }
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t chosen = (s[4] & s[5]) ^ (~s[4] & s[6]);
    uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    uint32_t one = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) + chosen +
                   round_constants[i] + w[i];
    uint32_t two = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + majority;
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += one;
    s[0] = one + two;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

void sha256_begin(sha256 *hash) {
  memcpy(hash->state, initial_state, sizeof initial_state);
  hash->size = 0;
}

void sha256_add(sha256 *hash, const void *data, size_t size) {
  const uint8_t *from = data;
  while (size) {
    size_t filled = hash->size % SHA256_BLOCK, taken = SHA256_BLOCK - filled;
    if (taken > size) taken = size;
    memcpy(hash->block + filled, from, taken);
    hash->size += taken;
    from += taken;
    size -= taken;
    if (filled + taken == SHA256_BLOCK) compress(hash->state, hash->block);
  }
}

void sha256_end(sha256 *hash, uint8_t out[SHA256_SIZE]) {
  static const uint8_t padding[SHA256_BLOCK] = {0x80};
  uint64_t bits = hash->size * 8;
  uint8_t length[8];
  put_big_endian(length, (uint32_t)(bits >> 32));
  put_big_endian(length + 4, (uint32_t)bits);
  sha256_add(hash, padding, 1 + (2 * SHA256_BLOCK - 9 - hash->size % SHA256_BLOCK) % SHA256_BLOCK);
  sha256_add(hash, length, sizeof length);
  for (int i = 0; i < 8; i++) put_big_endian(out + 4 * i, hash->state[i]);
}

void hmac_begin(hmac_sha256 *code, const void *key, size_t key_size) {
  uint8_t inner_key[SHA256_BLOCK] = {0};
  if (key_size > SHA256_BLOCK) {
    sha256_begin(&code->inner);
    sha256_add(&code->inner, key, key_size);
    sha256_end(&code->inner, inner_key);
  } else if (key_size) {
    memcpy(inner_key, key, key_size);
  }
  for (int i = 0; i < SHA256_BLOCK; i++) {
    code->outer_key[i] = inner_key[i] ^ 0x5c;
    inner_key[i] ^= 0x36;
  }
  sha256_begin(&code->inner);
  sha256_add(&code->inner, inner_key, sizeof inner_key);
}

void hmac_add(hmac_sha256 *code, const void *data, size_t size) { sha256_add(&code->inner, data, size); }

void hmac_end(hmac_sha256 *code, uint8_t out[SHA256_SIZE]) {
  uint8_t inner[SHA256_SIZE];
  sha256 outer;
  sha256_end(&code->inner, inner);
  sha256_begin(&outer);
  sha256_add(&outer, code->outer_key, sizeof code->outer_key);
  sha256_add(&outer, inner, sizeof inner);
  sha256_end(&outer, out);
}

int secret_equal(const uint8_t *a, const uint8_t *b, size_t size) {
  volatile uint8_t differences = 0;
  for (size_t i = 0; i < size; i++) differences = (uint8_t)(differences | (a[i] ^ b[i]));
  return differences == 0;
}

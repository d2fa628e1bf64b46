/* HMAC-SHA-256, as the standard writes it down. */
#include "hmac.h"

#include <string.h>

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

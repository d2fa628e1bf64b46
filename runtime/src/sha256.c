/*
 * SHA-256 by the processor's own instructions, where it has some: several times as fast, which tells
 * where the weights of a model are hashed; else word by word, in as little code as it takes.
 */
#include "sha256.h"

#include <string.h>

#if !defined(__wasm__) /* where nothing is loaded from files */

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

/* ---- by instructions ---- */

#if defined(__aarch64__) && defined(__linux__) && (!defined(__clang__) || __clang_major__ >= 17)
#define HAS_INSTRUCTIONS

#include <arm_neon.h>
#include <sys/auxv.h>

static int find_instructions(void) { return (int)(getauxval(AT_HWCAP) >> 6 & 1); }

__attribute__((target("+crypto"))) static void compress_fast(uint32_t state[8], const uint8_t *block,
                                                           size_t blocks) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; blocks; blocks--, block += SHA256_BLOCK) {
    uint32x4_t w[4], first = abcd, second = efgh;
    for (int i = 0; i < 4; i++) w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(block + 16 * i)));
    for (int i = 0; i < 64; i += 4) {
      uint32x4_t sum = vaddq_u32(w[0], vld1q_u32(round_constants + i)), before = abcd;
      uint32x4_t next = vsha256su1q_u32(vsha256su0q_u32(w[0], w[1]), w[2], w[3]);
      abcd = vsha256hq_u32(abcd, efgh, sum);
      efgh = vsha256h2q_u32(efgh, before, sum);
      w[0] = w[1], w[1] = w[2], w[2] = w[3], w[3] = next;
    }
    abcd = vaddq_u32(abcd, first);
    efgh = vaddq_u32(efgh, second);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

#elif defined(__x86_64__) && defined(__GNUC__)
#define HAS_INSTRUCTIONS

#include <cpuid.h>
#include <immintrin.h>

static int find_instructions(void) {
  unsigned a, b, c, d; /* what has these has SSE 4.1 too */
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}

__attribute__((target("sha,sse4.1"))) static void compress_fast(uint32_t state[8], const uint8_t *block,
                                                                size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  /* The instructions keep the words as a, b, e, f and c, d, g, h, from the highest down. */
  __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
  __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
  for (; blocks; blocks--, block += SHA256_BLOCK) {
    __m128i w[4], first = abef, second = cdgh;
    for (int i = 0; i < 4; i++)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(block + 16 * i)), swap);
    for (int i = 0; i < 64; i += 4) {
      __m128i sum = _mm_add_epi32(w[0], _mm_loadu_si128((const __m128i *)(round_constants + i)));
      __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(w[0], w[1]), _mm_alignr_epi8(w[3], w[2], 4));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      next = _mm_sha256msg2_epu32(next, w[3]);
      w[0] = w[1], w[1] = w[2], w[2] = w[3], w[3] = next;
    }
    abef = _mm_add_epi32(abef, first);
    cdgh = _mm_add_epi32(cdgh, second);
  }
  low = _mm_shuffle_epi32(abef, 0x1b);
  high = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xf0));
  _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

#endif

/* ---- word by word ---- */

static uint32_t rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static uint32_t big_endian(const uint8_t *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_big_endian(uint8_t *at, uint32_t word) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(word >> (24 - 8 * i));
}

static void compress_block(uint32_t state[8], const uint8_t *block) {
  uint32_t w[16]; /* the last sixteen words are all that is needed of the schedule */
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (int i = 0; i < 64; i++) {
    if (i < 16) {
      w[i] = big_endian(block + 4 * i);
    } else {
      uint32_t x = w[(i + 1) % 16], y = w[(i + 14) % 16];
      w[i % 16] += w[(i + 9) % 16] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) +
                   (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
    uint32_t one = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) +
                   round_constants[i] + w[i % 16];
    uint32_t two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one;
    d = c, c = b, b = a, a = one + two;
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d;
  state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

static void compress(sha256 *hash, const uint8_t *from, size_t blocks) {
#if defined(HAS_INSTRUCTIONS)
  if (hash->instructions) {
    compress_fast(hash->state, from, blocks);
    return;
  }
#endif
  for (; blocks; blocks--, from += SHA256_BLOCK) compress_block(hash->state, from);
}

/* ---- messages in pieces ---- */

void sha256_begin(sha256 *hash) {
  memcpy(hash->state, initial_state, sizeof initial_state);
  hash->size = 0;
#if defined(HAS_INSTRUCTIONS)
  hash->instructions = find_instructions();
#endif
}

void sha256_add(sha256 *hash, const void *data, size_t size) {
  const uint8_t *from = data;
  while (size) {
    size_t filled = hash->size % SHA256_BLOCK, taken = SHA256_BLOCK - filled;
    if (!filled && size >= SHA256_BLOCK) { /* whole blocks are not moved first */
      taken = size / SHA256_BLOCK * SHA256_BLOCK;
      compress(hash, from, taken / SHA256_BLOCK);
    } else {
      if (taken > size) taken = size;
      memcpy(hash->block + filled, from, taken);
      if (filled + taken == SHA256_BLOCK) compress(hash, hash->block, 1);
    }
    hash->size += taken;
    from += taken;
    size -= taken;
  }
}

void sha256_end(sha256 *hash, uint8_t out[SHA256_SIZE]) {
  uint64_t bits = hash->size * 8;
  uint8_t length[8], padding = 0x80;
  put_big_endian(length, (uint32_t)(bits >> 32));
  put_big_endian(length + 4, (uint32_t)bits);
  do {
    sha256_add(hash, &padding, 1);
    padding = 0;
  } while (hash->size % SHA256_BLOCK != SHA256_BLOCK - sizeof length);
  sha256_add(hash, length, sizeof length);
  for (int i = 0; i < 8; i++) put_big_endian(out + 4 * i, hash->state[i]);
}

#endif

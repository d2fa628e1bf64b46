/* What the machine can do: single-precision multiply-adds a second, and c = a + b by a plain loop. */
#include <stdint.h>
#include <time.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float vector __attribute__((vector_size(LANES * sizeof(float))));

#if defined(__aarch64__)
#define IN_REGISTER "+w"
#elif defined(__AVX512F__)
#define IN_REGISTER "+v"
#elif defined(__x86_64__)
#define IN_REGISTER "+x"
#else
#define IN_REGISTER "+m"
#endif

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* About as long as what it is compared with: clock rates drift, and neighbours take their share.
   Twelve chains of dependent multiply-adds, each in a register: enough to fill the pipes. */
#define EACH(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11)
#define DECLARE(i) vector s##i = x * (float)i;
#define STEP(i) s##i += x * y;
#define COLLECT(i) total += s##i;

double multiply_add_rate(float *kept) {
  enum { ROUNDS = 6000000, CHAINS = 12 };
  vector x, y, total = {0};
  for (int i = 0; i < LANES; i++) x[i] = 0.999f, y[i] = 0.001f;
  EACH(DECLARE)
  double start = seconds();
  for (int r = 0; r < ROUNDS; r++) {
    __asm__ volatile("" : IN_REGISTER(x), IN_REGISTER(y)); /* their product is not known before */
    EACH(STEP)
  }
  double rate = 2.0 * ROUNDS * CHAINS * LANES / (seconds() - start);
  EACH(COLLECT)
  *kept = total[0]; /* so that nothing is left out */
  return rate;
}

void add(float *restrict c, const float *restrict a, const float *restrict b, int64_t n) {
  for (int64_t i = 0; i < n; i++) c[i] = a[i] + b[i];
}

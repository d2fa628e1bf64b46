/* Functions of <math.h> that do not come with the compiler.

   They are made to be short and right: to within 1e-13 of the result, and those of float are
   computed as double and rounded. */

#include "math.h"

#include <stdint.h>

#define PI 3.14159265358979323846
#define HALF_PI 1.57079632679489661923
#define LOG_2 0.69314718055994530942
#define TWO_OVER_ROOT_PI 1.12837916709551257390
#define LARGEST_EXPONENT 709.0
#define SQUARE_OVERFLOWS 1e150

static uint64_t bits_of(double x) {
  union { double value; uint64_t bits; } both = {x};
  return both.bits;
}

static double of_bits(uint64_t bits) {
  union { uint64_t bits; double value; } both = {bits};
  return both.value;
}

static uint32_t bits_of_float(float x) {
  union { float value; uint32_t bits; } both = {x};
  return both.bits;
}

static float float_of_bits(uint32_t bits) {
  union { uint32_t bits; float value; } both = {bits};
  return both.value;
}

/* ---- parts of numbers ---- */

double copysign(double x, double y) {
  const uint64_t sign = (uint64_t)1 << 63;
  return of_bits((bits_of(x) & ~sign) | (bits_of(y) & sign));
}

float copysignf(float x, float y) {
  const uint32_t sign = (uint32_t)1 << 31;
  return float_of_bits((bits_of_float(x) & ~sign) | (bits_of_float(y) & sign));
}

double nextafter(double x, double y) {
  if (isnan(x) || isnan(y)) return x + y;
  if (x == y) return y;
  if (x == 0.0) return copysign(of_bits(1), y);
  return of_bits(bits_of(x) + ((x < y) == (x > 0.0) ? 1 : -(uint64_t)1));
}

float nextafterf(float x, float y) {
  if (isnan(x) || isnan(y)) return x + y;
  if (x == y) return y;
  if (x == 0.0f) return copysignf(float_of_bits(1), y);
  return float_of_bits(bits_of_float(x) + ((x < y) == (x > 0.0f) ? 1 : -(uint32_t)1));
}

/* Beyond 2^52 a double has no fraction; adding and taking away that much rounds to even. */
double nearbyint(double x) {
  const double whole = copysign(4503599627370496.0, x);
  if (!(fabs(x) < 4503599627370496.0)) return x;
  volatile double moved = x + whole;
  return copysign(moved - whole, x);
}

float nearbyintf(float x) {
  const float whole = copysignf(8388608.0f, x);
  if (!(fabsf(x) < 8388608.0f)) return x;
  volatile float moved = x + whole;
  return copysignf(moved - whole, x);
}

double rint(double x) { return nearbyint(x); }
float rintf(float x) { return nearbyintf(x); }
long lround(double x) { return (long)round(x); }
long lroundf(float x) { return (long)roundf(x); }

/* A number below the smallest normal one is rounded once: the last factor alone can make it so. */
double ldexp(double x, int power) {
  if (power > 3000) power = 3000;
  if (power < -3000) power = -3000;
  for (; power > 1023; power -= 1023) x *= of_bits((uint64_t)2046 << 52);
  for (; power < -968; power += 968) x *= of_bits((uint64_t)55 << 52);
  return x * of_bits((uint64_t)(power + 1023) << 52);
}

float ldexpf(float x, int power) { return (float)ldexp(x, power); }

/* ---- powers and logarithms ---- */

double log1p(double x) {
  const double moved = 1.0 + x;
  if (moved == 1.0 || moved == (double)INFINITY) return x;
  return log(moved) * (x / (moved - 1.0));
}

double hypot(double x, double y) {
  if (isinf(x) || isinf(y)) return (double)INFINITY;
  const double a = fabs(x), b = fabs(y), larger = a > b ? a : b, smaller = a > b ? b : a;
  if (isnan(x) || isnan(y)) return x + y;
  if (larger == 0.0) return 0.0;
  const double part = smaller / larger;
  return larger * sqrt(1.0 + part * part);
}

static double pow_of_positive(double x, double y) {
  const double size = fabs(y);
  if (size <= 64.0 && trunc(y) == y) {
    double product = 1.0, factor = x;
    for (uint32_t left = (uint32_t)size; left != 0; left >>= 1, factor *= factor) {
      if (left & 1) product *= factor;
    }
    if (product > 0.0 && isfinite(product)) return y < 0.0 ? 1.0 / product : product;
  }
  return exp(y * log(x));
}

double pow(double x, double y) {
  if (y == 0.0 || x == 1.0) return 1.0;
  if (isnan(x) || isnan(y)) return x + y;
  if (x == -1.0 && isinf(y)) return 1.0;
  const int whole = trunc(y) == y, odd = whole && fabs(fmod(y, 2.0)) == 1.0;
  const double sign = odd ? copysign(1.0, x) : 1.0, size = fabs(x);
  if (x < 0.0 && !whole && isfinite(x)) return (double)NAN;
  if (size == 0.0) return sign * (y < 0.0 ? (double)INFINITY : 0.0);
  if (isinf(x)) return sign * (y < 0.0 ? 0.0 : (double)INFINITY);
  if (size == 1.0) return sign;
  if (isinf(y)) return (size > 1.0) == (y > 0.0) ? (double)INFINITY : 0.0;
  return sign * pow_of_positive(size, y);
}

/* ---- hyperbolic functions ---- */

static double sinh_series(double x) {
  const double square = x * x;
  double sum = 1.0;
  for (int last = 21; last > 1; last -= 2) sum = 1.0 + sum * square / (last * (last - 1));
  return x * sum;
}

double sinh(double x) {
  const double size = fabs(x);
  if (size < 1.0) return sinh_series(x);
  const double grown = size > LARGEST_EXPONENT ? exp(size * 0.5) : exp(size);
  if (size > LARGEST_EXPONENT) return copysign(0.5 * grown * grown, x);
  return copysign(0.5 * (grown - 1.0 / grown), x);
}

double cosh(double x) {
  const double size = fabs(x);
  const double grown = size > LARGEST_EXPONENT ? exp(size * 0.5) : exp(size);
  if (size > LARGEST_EXPONENT) return 0.5 * grown * grown;
  return 0.5 * (grown + 1.0 / grown);
}

double tanh(double x) {
  const double size = fabs(x);
  if (isnan(x)) return x;
  if (size > 20.0) return copysign(1.0, x);
  if (size < 0.5) return sinh_series(x) / cosh(x);
  return copysign(1.0 - 2.0 / (exp(2.0 * size) + 1.0), x);
}

double asinh(double x) {
  const double size = fabs(x), square = size * size;
  if (size > SQUARE_OVERFLOWS) return copysign(log(size) + LOG_2, x);
  return copysign(log1p(size + square / (1.0 + sqrt(square + 1.0))), x);
}

double acosh(double x) {
  const double above = x - 1.0;
  if (x < 1.0) return (double)NAN;
  if (x > SQUARE_OVERFLOWS) return log(x) + LOG_2;
  return log1p(above + sqrt(above * (above + 2.0)));
}

double atanh(double x) {
  const double size = fabs(x);
  return copysign(0.5 * log1p(2.0 * size / (1.0 - size)), x);
}

/* ---- angles ---- */

/* Halving the angle twice leaves an argument below 0.2, where a short series is enough. */
double atan(double x) {
  const double size = fabs(x);
  if (isnan(x) || size < 1e-8) return x;
  double part = size > 1.0 ? 1.0 / size : size;
  for (int half = 0; half < 2; half++) part = part / (1.0 + sqrt(1.0 + part * part));
  const double square = part * part;
  double sum = 0.0;
  for (int last = 27; last > 0; last -= 2) sum = 1.0 / last - square * sum;
  const double angle = 4.0 * part * sum;
  return copysign(size > 1.0 ? HALF_PI - angle : angle, x);
}

double atan2(double y, double x) {
  if (isnan(x) || isnan(y)) return x + y;
  double angle;
  if (y == 0.0) {
    angle = 0.0;
  } else if (isinf(x) && isinf(y)) {
    angle = HALF_PI / 2;
  } else {
    angle = x == 0.0 ? HALF_PI : atan(fabs(y / x));
  }
  return copysign(signbit(x) ? PI - angle : angle, y);
}

double asin(double x) {
  if (fabs(x) > 1.0) return (double)NAN;
  return atan2(x, sqrt((1.0 - x) * (1.0 + x)));
}

double acos(double x) {
  if (fabs(x) > 1.0) return (double)NAN;
  return atan2(sqrt((1.0 - x) * (1.0 + x)), x);
}

/* ---- the error function ---- */

/* All terms have one sign, so that none cancels another. */
static double erf_series(double size) {
  double term = size, sum = size;
  for (int odd = 3; term > sum * 1e-17; odd += 2) {
    term *= 2.0 * size * size / odd;
    sum += term;
  }
  return TWO_OVER_ROOT_PI * exp(-size * size) * sum;
}

static double erf_complement(double size) {
  double rest = size;
  for (int level = 60; level > 0; level--) rest = size + 0.5 * level / rest;
  return 0.5 * TWO_OVER_ROOT_PI * exp(-size * size) / rest;
}

double erf(double x) {
  const double size = fabs(x);
  if (isnan(x)) return x;
  if (size > 6.0) return copysign(1.0, x);
  return copysign(size < 2.5 ? erf_series(size) : 1.0 - erf_complement(size), x);
}

/* ---- the same of float ---- */

float log1pf(float x) { return (float)log1p(x); }
float asinf(float x) { return (float)asin(x); }
float acosf(float x) { return (float)acos(x); }
float atanf(float x) { return (float)atan(x); }
float atan2f(float y, float x) { return (float)atan2(y, x); }
float sinhf(float x) { return (float)sinh(x); }
float coshf(float x) { return (float)cosh(x); }
float tanhf(float x) { return (float)tanh(x); }
float asinhf(float x) { return (float)asinh(x); }
float acoshf(float x) { return (float)acosh(x); }
float atanhf(float x) { return (float)atanh(x); }
float erff(float x) { return (float)erf(x); }
float powf(float x, float y) { return (float)pow(x, y); }
float hypotf(float x, float y) { return (float)hypot(x, y); }

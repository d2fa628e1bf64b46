/* What networks call of <math.h>, where there is no C library. */
#ifndef MATH_H_
#define MATH_H_

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)

/* These come with the compiler. */
double exp(double x);
double exp2(double x);
double log(double x);
double log2(double x);
double log10(double x);
double sqrt(double x);
double sin(double x);
double cos(double x);
double tan(double x);
double floor(double x);
double ceil(double x);
double trunc(double x);
double round(double x);
double fabs(double x);
float expf(float x);
float exp2f(float x);
float logf(float x);
float log2f(float x);
float log10f(float x);
float sqrtf(float x);
float sinf(float x);
float cosf(float x);
float tanf(float x);
float floorf(float x);
float ceilf(float x);
float truncf(float x);
float roundf(float x);
float fabsf(float x);
double fmod(double x, double y);
double fmin(double x, double y);
double fmax(double x, double y);
float fmodf(float x, float y);
float fminf(float x, float y);
float fmaxf(float x, float y);

/* These are in math.c. */
double log1p(double x);
double asin(double x);
double acos(double x);
double atan(double x);
double sinh(double x);
double cosh(double x);
double tanh(double x);
double asinh(double x);
double acosh(double x);
double atanh(double x);
double erf(double x);
double nearbyint(double x);
double rint(double x);
float log1pf(float x);
float asinf(float x);
float acosf(float x);
float atanf(float x);
float sinhf(float x);
float coshf(float x);
float tanhf(float x);
float asinhf(float x);
float acoshf(float x);
float atanhf(float x);
float erff(float x);
float nearbyintf(float x);
float rintf(float x);
double atan2(double x, double y);
double pow(double x, double y);
double hypot(double x, double y);
double copysign(double x, double y);
double nextafter(double x, double y);
float atan2f(float x, float y);
float powf(float x, float y);
float hypotf(float x, float y);
float copysignf(float x, float y);
float nextafterf(float x, float y);
double ldexp(double x, int power);
float ldexpf(float x, int power);
long lround(double x);
long lroundf(float x);

#endif /* MATH_H_ */

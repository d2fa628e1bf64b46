/*
 * CPU feature detection: whether this processor has the instructions that code was compiled with. Code
 * says what it needs in the symbol __sterna__needs: the processor's name, then features by LLVM's
 * names, a blank before each. Without this look the first such instruction would kill the process.
 * Features that are not listed here, and systems that do not tell, are taken to be all right.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)

#include <cpuid.h>

enum { EAX, EBX, ECX, EDX, REGISTERS };
enum { BASIC, EXTENDED, EXTENDED_MORE, OF_AMD, LEAVES };
/* Registers that the system must keep for a process beside the processor having them. */
enum { STATE_ANY = 0, STATE_AVX = 0x6, STATE_AVX512 = 0xe6 };

typedef struct {
  const char *name;
  uint8_t leaf, reg, bit, state;
} known_feature;

static const known_feature known_features[] = {
    {"sse3", BASIC, ECX, 0, STATE_ANY},
    {"ssse3", BASIC, ECX, 9, STATE_ANY},
    {"fma", BASIC, ECX, 12, STATE_AVX},
    {"sse4.1", BASIC, ECX, 19, STATE_ANY},
    {"sse4.2", BASIC, ECX, 20, STATE_ANY},
    {"movbe", BASIC, ECX, 22, STATE_ANY},
    {"popcnt", BASIC, ECX, 23, STATE_ANY},
    {"avx", BASIC, ECX, 28, STATE_AVX},
    {"f16c", BASIC, ECX, 29, STATE_AVX},
    {"bmi", EXTENDED, EBX, 3, STATE_ANY},
    {"avx2", EXTENDED, EBX, 5, STATE_AVX},
    {"bmi2", EXTENDED, EBX, 8, STATE_ANY},
    {"avx512f", EXTENDED, EBX, 16, STATE_AVX512},
    {"avx512dq", EXTENDED, EBX, 17, STATE_AVX512},
    {"avx512ifma", EXTENDED, EBX, 21, STATE_AVX512},
    {"avx512cd", EXTENDED, EBX, 28, STATE_AVX512},
    {"avx512bw", EXTENDED, EBX, 30, STATE_AVX512},
    {"avx512vl", EXTENDED, EBX, 31, STATE_AVX512},
    {"avx512vbmi", EXTENDED, ECX, 1, STATE_AVX512},
    {"avx512vbmi2", EXTENDED, ECX, 6, STATE_AVX512},
    {"gfni", EXTENDED, ECX, 8, STATE_ANY},
    {"avx512vnni", EXTENDED, ECX, 11, STATE_AVX512},
    {"avx512bitalg", EXTENDED, ECX, 12, STATE_AVX512},
    {"avx512vpopcntdq", EXTENDED, ECX, 14, STATE_AVX512},
    {"avx512fp16", EXTENDED, EDX, 23, STATE_AVX512},
    {"avxvnni", EXTENDED_MORE, EAX, 4, STATE_AVX},
    {"avx512bf16", EXTENDED_MORE, EAX, 5, STATE_AVX512},
    {"avxifma", EXTENDED_MORE, EAX, 23, STATE_AVX},
    {"avxvnniint8", EXTENDED_MORE, EDX, 4, STATE_AVX},
    {"avxneconvert", EXTENDED_MORE, EDX, 5, STATE_AVX},
    {"avxvnniint16", EXTENDED_MORE, EDX, 10, STATE_AVX},
    {"lzcnt", OF_AMD, ECX, 5, STATE_ANY},
    {"sse4a", OF_AMD, ECX, 6, STATE_ANY},
    {"xop", OF_AMD, ECX, 11, STATE_AVX},
    {"fma4", OF_AMD, ECX, 16, STATE_AVX},
    {"tbm", OF_AMD, ECX, 21, STATE_ANY},
};

/* What the processor says; a virtual machine takes its time for each answer. */
typedef struct {
  uint32_t leaves[LEAVES][REGISTERS];
  uint32_t kept; /* by the system, a bit for each kind of registers */
} processor;

static void read_leaf(uint32_t *out, uint32_t leaf, uint32_t part) {
  __get_cpuid_count(leaf, part, &out[EAX], &out[EBX], &out[ECX], &out[EDX]);
}

static void read_processor(processor *p) {
  memset(p, 0, sizeof *p);
  read_leaf(p->leaves[BASIC], 1, 0);
  read_leaf(p->leaves[EXTENDED], 7, 0);
  read_leaf(p->leaves[EXTENDED_MORE], 7, 1);
  read_leaf(p->leaves[OF_AMD], 0x80000001u, 0);
  if (p->leaves[BASIC][ECX] >> 27 & 1) { /* xgetbv is there */
    uint32_t high;
    __asm__ volatile("xgetbv" : "=a"(p->kept), "=d"(high) : "c"(0));
  }
#if defined(__APPLE__)
  if ((p->kept & STATE_AVX) == STATE_AVX) p->kept |= STATE_AVX512; /* granted at the first use */
#endif
}

static int has_feature(const processor *p, const known_feature *f) {
  return (p->leaves[f->leaf][f->reg] >> f->bit & 1) && (p->kept & f->state) == f->state;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

/* By which bits of which word of its answer the system tells. */
enum { FIRST_WORD, SECOND_WORD, WORDS };

typedef struct {
  const char *name;
  int word;
  uint64_t bits;
} known_feature;

typedef struct {
  uint64_t words[WORDS];
} processor;

#define BIT(n) ((uint64_t)1 << (n))

static const known_feature known_features[] = {
    {"lse", FIRST_WORD, BIT(8)},
    {"fullfp16", FIRST_WORD, BIT(9) | BIT(10)},
    {"rdm", FIRST_WORD, BIT(12)},
    {"complxnum", FIRST_WORD, BIT(14)},
    {"rcpc", FIRST_WORD, BIT(15)},
    {"sha3", FIRST_WORD, BIT(17)},
    {"dotprod", FIRST_WORD, BIT(20)},
    {"sve", FIRST_WORD, BIT(22)},
    {"fp16fml", FIRST_WORD, BIT(23)},
    {"flagm", FIRST_WORD, BIT(27)},
    {"sve2", SECOND_WORD, BIT(1)},
    {"i8mm", SECOND_WORD, BIT(13)},
    {"bf16", SECOND_WORD, BIT(14)},
    {"sme", SECOND_WORD, BIT(23)},
    {"cssc", SECOND_WORD, BIT(34)},
    {"mops", SECOND_WORD, BIT(43)},
};

#undef BIT

static void read_processor(processor *p) {
  p->words[FIRST_WORD] = getauxval(AT_HWCAP);
  p->words[SECOND_WORD] = getauxval(AT_HWCAP2);
}

static int has_feature(const processor *p, const known_feature *f) {
  return (p->words[f->word] & f->bits) == f->bits;
}

#else

typedef struct {
  const char *name;
} known_feature, processor;

static const known_feature known_features[] = {{""}};

static void read_processor(processor *p) { p->name = ""; }

static int has_feature(const processor *p, const known_feature *f) {
  (void)p;
  (void)f;
  return 1;
}

#endif

static int is_lacking(const processor *p, const char *name, size_t size) {
  for (size_t i = 0; i < sizeof known_features / sizeof *known_features; i++) {
    const known_feature *f = &known_features[i];
    if (size && strlen(f->name) == size && memcmp(f->name, name, size) == 0) return !has_feature(p, f);
  }
  return 0;
}

int sterna_check_processor(const char *name, const char *needs) {
  REQUIRE(needs);
  char lacking[300] = "";
  size_t used = 0, cpu = strcspn(needs, " ");
  processor here;
  read_processor(&here);
  for (const char *at = needs + cpu; *at;) {
    at += strspn(at, " ");
    size_t size = strcspn(at, " ");
    if (is_lacking(&here, at, size) && used + size + 3 < sizeof lacking)
      used += (size_t)snprintf(lacking + used, sizeof lacking - used, "%s%.*s", used ? ", " : "", (int)size,
                               at);
    at += size;
  }
  if (!used) return 0;
  return sterna_set_errorf("ValueError",
                           "%s%s%s was compiled for -mcpu=%.*s, and this processor lacks %s; compile it on "
                           "this machine with -mcpu=native, or for an older -mcpu",
                           name ? "cannot load '" : "the code", name ? name : "", name ? "': it" : "",
                           (int)(cpu < 64 ? cpu : 64), needs, lacking);
}

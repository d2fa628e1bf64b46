/*
 * CPU feature detection: whether this processor has the instructions that code was compiled with. Code
 * says what it needs in the symbol __sterna__needs: the processor's name, then features by LLVM's
 * names, a blank before each. Without this look the first such instruction would kill the process.
 * Features that are not listed here, and systems that do not tell, are taken to be all right.
 *
 * A portable library holds a model's code for several levels of an architecture and says in the symbol
 * __sterna__levels which: a level's name and what it needs, as above, then a semicolon, the best first.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)

#include <cpuid.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { EAX, EBX, ECX, EDX, REGISTERS };
enum { BASIC, EXTENDED, EXTENDED_MORE, OF_AMD, LEAVES };
/* Registers that the system must keep for a process beside the processor having them. */
enum { STATE_ANY = 0, STATE_AVX = 0x6, STATE_AVX512 = 0xe6, STATE_TILES = 0x60000 };

typedef struct {
  const char *name;
  uint8_t leaf, reg, bit;
  uint32_t state;
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
    {"amx-bf16", EXTENDED, EDX, 22, STATE_TILES},
    {"avx512fp16", EXTENDED, EDX, 23, STATE_AVX512},
    {"amx-tile", EXTENDED, EDX, 24, STATE_TILES},
    {"amx-int8", EXTENDED, EDX, 25, STATE_TILES},
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

/* Linux keeps tiles for a process that has asked for them. */
static int grants_tiles(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
  enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
#else
  return 0;
#endif
}

static int has_feature(const processor *p, const known_feature *f) {
  return (p->leaves[f->leaf][f->reg] >> f->bit & 1) && (p->kept & f->state) == f->state &&
         (f->state != STATE_TILES || grants_tiles());
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

/* Writes the names of what is lacking into a text; gives its length. */
static size_t list_lacking(const processor *p, sterna_bytes needs, char *out, size_t room) {
  const char *at = needs.data, *end = needs.data + needs.size;
  size_t used = 0;
  *out = 0;
  while (at < end) {
    const char *blank = memchr(at, ' ', (size_t)(end - at));
    size_t size = (size_t)((blank ? blank : end) - at);
    if (is_lacking(p, at, size) && used + size + 3 < room)
      used += (size_t)snprintf(out + used, room - used, "%s%.*s", used ? ", " : "", (int)size, at);
    at += size + 1;
  }
  return used;
}

static int check_needs(const char *name, sterna_bytes needs) {
  char lacking[300];
  processor here;
  read_processor(&here);
  const char *blank = memchr(needs.data, ' ', needs.size);
  size_t cpu = blank ? (size_t)(blank - needs.data) : needs.size;
  sterna_bytes features = {needs.data + cpu, needs.size - cpu};
  if (!list_lacking(&here, features, lacking, sizeof lacking)) return 0;
  return sterna_set_errorf("ValueError",
                           "%s%s%s was compiled for -mcpu=%.*s, and this processor lacks %s; compile it on "
                           "this machine with -mcpu=native, or for an older -mcpu",
                           name ? "cannot load '" : "the code", name ? name : "", name ? "': it" : "",
                           (int)(cpu < 64 ? cpu : 64), needs.data, lacking);
}

int sterna_check_processor(const char *name, const char *needs) {
  REQUIRE(needs);
  return check_needs(name, (sterna_bytes){needs, strlen(needs)});
}

int processor_pick_level(const char *name, const char *levels, sterna_bytes *out) {
  char lacking[300];
  sterna_bytes needs = {levels, 0};
  processor here;
  read_processor(&here);
  for (const char *at = levels, *end; (end = strchr(at, ';')); at = end + 1) {
    size_t size = strcspn(at, " ;");
    *out = (sterna_bytes){at, size};
    needs = (sterna_bytes){at + size, (size_t)(end - at) - size};
    if (!list_lacking(&here, needs, lacking, sizeof lacking)) return 0;
  }
  /* Not even the lowest. Its name stands for the processor's. */
  return check_needs(name, (sterna_bytes){out->data, out->size + needs.size});
}

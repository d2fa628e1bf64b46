/*
 * A look at a library file before the system's loader maps it. Loaders trust what the file says of
 * itself: a truncated library is mapped past its end and kills the process when it is touched.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#if defined(__ELF__)

#include <elf.h>
#include <errno.h>
#include <sys/stat.h>

typedef struct {
  const char *path;
  FILE *file;
  uint64_t size;
} binary;

#if defined(__x86_64__)
enum { HOST_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { HOST_MACHINE = EM_AARCH64 };
#elif defined(__arm__)
enum { HOST_MACHINE = EM_ARM };
#elif defined(__riscv)
enum { HOST_MACHINE = 243 };
#elif defined(__i386__)
enum { HOST_MACHINE = EM_386 };
#else
enum { HOST_MACHINE = -1 }; /* not compared */
#endif

#if UINTPTR_MAX == UINT64_MAX
typedef Elf64_Ehdr elf_header;
typedef Elf64_Phdr elf_segment;
enum { HOST_CLASS = ELFCLASS64 };
#else
typedef Elf32_Ehdr elf_header;
typedef Elf32_Phdr elf_segment;
enum { HOST_CLASS = ELFCLASS32 };
#endif

static const char *machine_name(int machine) {
  switch (machine) {
    case EM_X86_64: return "x86-64";
    case EM_AARCH64: return "AArch64";
    case EM_ARM: return "32-bit ARM";
    case EM_386: return "32-bit x86";
    case EM_PPC64: return "PowerPC";
    case EM_MIPS: return "MIPS";
    case 164: return "Hexagon";
    case 243: return "RISC-V";
    default: return "another machine";
  }
}

static int refuse_binary(const binary *b, const char *reason) {
  return sterna_set_errorf("ValueError", "cannot load '%s': %s", b->path, reason);
}

static int truncated(const binary *b, uint64_t needed) {
  return sterna_set_errorf("ValueError",
                           "cannot load '%s': the file is truncated, it has %llu of at least %llu bytes",
                           b->path, (unsigned long long)b->size, (unsigned long long)needed);
}

static int check_range(const binary *b, uint64_t offset, uint64_t length) {
  if (offset > b->size || length > b->size - offset)
    return truncated(b, offset > UINT64_MAX - length ? UINT64_MAX : offset + length);
  return 0;
}

static int read_at(const binary *b, uint64_t offset, void *into, size_t length) {
  if (check_range(b, offset, length)) return -1;
  if (fseek(b->file, (long)offset, SEEK_SET) || fread(into, 1, length, b->file) != length)
    return refuse_binary(b, "it cannot be read");
  return 0;
}

static int check_segments(const binary *b, const elf_header *h) {
  int loads_something = 0;
  if (h->e_phentsize != sizeof(elf_segment)) return refuse_binary(b, "its program headers are broken");
  if (check_range(b, h->e_phoff, (uint64_t)h->e_phnum * sizeof(elf_segment))) return -1;
  for (int i = 0; i < h->e_phnum; i++) {
    elf_segment segment;
    if (read_at(b, h->e_phoff + (uint64_t)i * sizeof segment, &segment, sizeof segment)) return -1;
    if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC) continue;
    if (!segment.p_filesz) continue; /* not in the file, as where only debug information is */
    if (check_range(b, segment.p_offset, segment.p_filesz)) return -1;
    if (segment.p_filesz > segment.p_memsz) return refuse_binary(b, "its program headers are broken");
    loads_something |= segment.p_type == PT_DYNAMIC;
  }
  return loads_something ? 0 : refuse_binary(b, "it is not a shared library (it has no dynamic section)");
}

static int check_header(const binary *b) {
  unsigned char magic[EI_NIDENT];
  elf_header h;
  if (b->size == 0) return refuse_binary(b, "the file is empty");
  size_t seen = b->size < 4 ? (size_t)b->size : 4;
  if (read_at(b, 0, magic, seen)) return -1;
  if (memcmp(magic, ELFMAG, seen)) return refuse_binary(b, "it is not a shared library (it is no ELF file)");
  if (read_at(b, 0, magic, sizeof magic)) return -1;
  uint16_t endian = 1;
  int host_data = *(unsigned char *)&endian ? ELFDATA2LSB : ELFDATA2MSB;
  /* The machine stands at the same place in 32-bit and 64-bit files. */
  unsigned char machine_bytes[2];
  if (read_at(b, 18, machine_bytes, 2)) return -1;
  int machine = magic[EI_DATA] == ELFDATA2MSB ? machine_bytes[0] << 8 | machine_bytes[1]
                                              : machine_bytes[1] << 8 | machine_bytes[0];
  if (HOST_MACHINE != -1 && machine != HOST_MACHINE)
    return sterna_set_errorf("ValueError", "cannot load '%s': it is built for %s, this machine is %s; "
                             "export it for this machine's target",
                             b->path, machine_name(machine), machine_name(HOST_MACHINE));
  if (magic[EI_CLASS] != HOST_CLASS || magic[EI_DATA] != host_data)
    return refuse_binary(b, "it is built for another word size or byte order");
  if (read_at(b, 0, &h, sizeof h)) return -1;
  if (h.e_type == ET_REL) return refuse_binary(b, "it is an object file; link it into a shared library first");
  if (h.e_type != ET_DYN) return refuse_binary(b, "it is not a shared library");
  if (check_segments(b, &h)) return -1;
  return check_range(b, h.e_shoff, (uint64_t)h.e_shnum * h.e_shentsize);
}

int binary_check(const char *path) {
  binary b = {path, NULL, 0};
  struct stat info;
  if (stat(path, &info)) return refuse_binary(&b, strerror(errno));
  if (!S_ISREG(info.st_mode)) return refuse_binary(&b, "it is not a file");
  b.size = (uint64_t)info.st_size;
  b.file = fopen(path, "rb");
  if (!b.file) return refuse_binary(&b, strerror(errno));
  int failed = check_header(&b);
  fclose(b.file);
  return failed;
}

#elif defined(__wasm__)

int binary_check(const char *path) {
  (void)path; /* the loader refuses them all */
  return 0;
}

#else

#if !defined(_WIN32)
#include <sys/stat.h>
#endif

int binary_check(const char *path) {
#if !defined(_WIN32)
  struct stat info; /* opening a pipe would wait for somebody to write */
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return sterna_set_errorf("ValueError", "cannot load '%s': it is not a file", path);
#endif
  FILE *file = fopen(path, "rb");
  if (!file) return sterna_set_errorf("ValueError", "cannot load '%s': it cannot be read", path);
  fclose(file);
  return 0;
}

#endif

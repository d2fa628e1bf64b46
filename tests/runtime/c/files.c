/* Files that are no libraries for this machine: refused by name, never a crash, never a hang. */
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

/* The file is refused with an error that names it and says why. */
static void refuse(const char *path, const char *why) {
  sterna_module *module = NULL;
  check_fails(sterna_module_load(path, &module), "ValueError", why);
  check(strstr(sterna_last_error(), path) != NULL);
  check(module == NULL);
  check_fails(sterna_load_extension(path, "init"), "ValueError", why);
}

static void refuse_content(const void *data, size_t size, const char *why) {
  char *path = check_path("content.so");
  check_write(path, data, size);
  refuse(path, why);
  free(path);
}

static char *library_bytes(const char *name, size_t *size) {
  char *path = check_library(name), *data = check_read(path, size);
  free(path);
  return data;
}

static void no_library(void) {
  refuse_content("", 0, "empty");
  refuse_content("\177", 1, "truncated");
  refuse_content("\177EL", 3, "truncated");
  refuse_content("\177ELF", 4, "truncated");
  refuse_content("a", 1, "not a shared library");
  refuse_content("int main(void) { return 0; }\n", 29, "not a shared library");
  refuse_content("#!/bin/sh\n", 10, "not a shared library");
  refuse_content("MZ\220\0\3\0\0\0", 8, "not a shared library");
  refuse_content("\0\0\0\0\0\0\0\0", 8, "not a shared library");
  refuse_content("!<arch>\n", 8, "not a shared library");
  refuse_content("INPUT(libc.so.6)\n", 17, "not a shared library");
  char noise[4096];
  for (int round = 0; round < 50; round++) {
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)check_random();
    if (round % 2) memcpy(noise, "\177ELF", 4);
    refuse_content(noise, sizeof noise, "");
  }
}

/* A file may end anywhere: while it is being written, or on a full disk. */
static void truncated(void) {
  static const char *const names[] = {"version1.so", "stripped.so"};
  for (int k = 0; k < 2; k++) {
    size_t size;
    char *data = library_bytes(names[k], &size), *path = check_path("truncated.so");
    check_write(path, data, size);
    for (size_t left = (size - 1) / 64 * 64; left > 0; left -= 64) {
      if (truncate(path, (off_t)left)) break;
      refuse(path, "truncated");
    }
    check_write(path, data, size - 1);
    refuse(path, "truncated");
    for (size_t left = 0; left < 200; left++) {
      check_write(path, data, left);
      refuse(path, left ? "truncated" : "empty");
    }
    free(path);
    free(data);
  }
}

static void other_machines(void) {
  size_t size;
  char *data = library_bytes("version1.so", &size), changed[EI_NIDENT + 4];
  static const struct {
    int machine;
    const char *name;
  } machines[] = {{EM_AARCH64, "AArch64"}, {EM_X86_64, "x86-64"}, {EM_ARM, "32-bit ARM"},
                  {EM_386, "32-bit x86"},  {243, "RISC-V"},       {164, "Hexagon"},
                  {EM_PPC64, "PowerPC"},   {EM_MIPS, "MIPS"},     {0xfffe, "another machine"}};
  memcpy(changed, data, sizeof changed);
  Elf64_Ehdr *header = (Elf64_Ehdr *)data;
  int own = header->e_machine;
  for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
    if (machines[i].machine == own) continue;
    header->e_machine = (Elf64_Half)machines[i].machine;
    refuse_content(data, size, machines[i].name);
    check(strstr(sterna_last_error(), "this machine is") != NULL);
  }
  memcpy(data, changed, sizeof changed);
  header->e_ident[EI_CLASS] = header->e_ident[EI_CLASS] == ELFCLASS64 ? ELFCLASS32 : ELFCLASS64;
  refuse_content(data, size, "word size or byte order");
  memcpy(data, changed, sizeof changed);
  header->e_ident[EI_CLASS] = 77;
  refuse_content(data, size, "");
  memcpy(data, changed, sizeof changed);
  header->e_ident[EI_DATA] = header->e_ident[EI_DATA] == ELFDATA2LSB ? ELFDATA2MSB : ELFDATA2LSB;
  header->e_machine = (Elf64_Half)(header->e_machine << 8 | header->e_machine >> 8);
  refuse_content(data, size, "word size or byte order");
  memcpy(data, changed, sizeof changed);
  header->e_ident[EI_DATA] = 0;
  refuse_content(data, size, "word size or byte order");
  free(data);
}

static void other_kinds(void) {
  char *path = check_library("object.o");
  refuse(path, "object file");
  free(path);
  path = check_library("debug.so"); /* what objcopy --only-keep-debug makes: no code in it */
  if (access(path, R_OK) == 0) refuse(path, "no dynamic section");
  free(path);
  refuse("/proc/self/exe", ""); /* a program */
  size_t size;
  char *data = library_bytes("version1.so", &size);
  Elf64_Ehdr *header = (Elf64_Ehdr *)data;
  header->e_type = ET_CORE;
  refuse_content(data, size, "not a shared library");
  header->e_type = ET_EXEC;
  refuse_content(data, size, "not a shared library");
  header->e_type = ET_DYN;
  header->e_phnum = 0;
  refuse_content(data, size, "no dynamic section");
  free(data);
}

/* Headers that point outside of the file, at every field that the loader trusts. */
static void wild_headers(void) {
  static const uint64_t values[] = {0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX, UINT64_MAX - 63};
  size_t size;
  char *data = library_bytes("version1.so", &size);
  char *original = malloc(size);
  memcpy(original, data, size);
  Elf64_Ehdr *header = (Elf64_Ehdr *)data;
  for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
    header->e_phoff = values[v];
    refuse_content(data, size, "truncated");
    memcpy(data, original, size);
    header->e_shoff = values[v];
    refuse_content(data, size, "truncated");
    memcpy(data, original, size);
    for (int i = 0; i < header->e_phnum; i++) {
      Elf64_Phdr *segment = (Elf64_Phdr *)(data + header->e_phoff) + i;
      if (segment->p_type != PT_LOAD && segment->p_type != PT_DYNAMIC) continue;
      segment->p_offset = values[v];
      refuse_content(data, size, "");
      memcpy(data, original, size);
      segment->p_filesz = values[v];
      refuse_content(data, size, "");
      memcpy(data, original, size);
    }
  }
  header->e_phentsize = 8;
  refuse_content(data, size, "broken");
  memcpy(data, original, size);
  header->e_phnum = 0xffff;
  refuse_content(data, size, "truncated");
  free(original);
  free(data);
}

static void other_than_files(void) {
  char *fifo = check_path("fifo.so"), *folder = check_path("folder.so"),
      *link = check_path("link.so");
  check(mkfifo(fifo, 0600) == 0 && mkdir(folder, 0700) == 0);
  check(symlink("link.so", link) == 0); /* to itself */
  refuse(fifo, "not a file");
  refuse(folder, "not a file");
  refuse("/dev/null", "not a file");
  refuse("/dev/zero", "not a file");
  refuse(link, "");
  refuse("/nonexistent/there.so", "No such file");
  refuse("/dev/null/there.so", "");
  refuse("", "No such file");
  static char long_path[10000];
  memset(long_path, 'x', sizeof long_path - 1);
  refuse(long_path, "");
  free(fifo);
  free(folder);
  free(link);
}

static int read_as_nobody(void *path) {
  if (setgid(65534) || setuid(65534)) return 99;
  refuse(path, "Permission denied");
  return 0;
}

static void unreadable(void) {
  char *path = check_path("unreadable.so"), *from = check_library("version1.so");
  check_copy(from, path);
  check(chmod(path, 0) == 0 && chmod(check_folder(), 0755) == 0);
  if (geteuid() == 0) {
    int code = check_child(read_as_nobody, path);
    check(code == 0 || code == 99);
  } else {
    refuse(path, "Permission denied");
  }
  free(path);
  free(from);
}

/* A library that needs something that is not there is refused in the system's own words. */
static void undefined_symbols(void) {
  char *path = check_library("undefined.so");
  refuse(path, "symbol_that_nobody_has");
  free(path);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"no_library", no_library},         {"truncated", truncated},
      {"other_machines", other_machines}, {"other_kinds", other_kinds},
      {"wild_headers", wild_headers},     {"other_than_files", other_than_files},
      {"unreadable", unreadable},         {"undefined_symbols", undefined_symbols},
  };
  return CASES(cases);
}

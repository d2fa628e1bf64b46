/* The shared libraries that are loaded, each once, with the module over it. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(_WIN32)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

/* Which file a path meant when it was loaded. */
typedef struct {
  uint64_t device, inode, size;
  int64_t modified_s, modified_ns;
} file_identity;

struct library {
  struct library *next;
  void *handle;
  int closeable;
  int foreign;           /* made for another runtime */
  int users;             /* modules over it */
  sterna_module *module; /* the one that is handed out, not counted */
  file_identity file;
  char path[];
};

static library *loaded;
static platform_mutex library_mutex = PLATFORM_MUTEX_INIT;

#if defined(_WIN32)

static char *full_path(const char *path) { return _fullpath(NULL, path, 0); }

static int identify(const char *path, file_identity *out) {
  (void)path;
  memset(out, 0, sizeof *out);
  return 0;
}

static void *open_copy(const char *path, char *error, size_t error_size) {
  return platform_library_open(path, error, error_size);
}

#else

static char *full_path(const char *path) { return realpath(path, NULL); }

static int identify(const char *path, file_identity *out) {
  struct stat info;
  if (stat(path, &info)) return -1;
  memset(out, 0, sizeof *out);
  out->device = (uint64_t)info.st_dev;
  out->inode = (uint64_t)info.st_ino;
  out->size = (uint64_t)info.st_size;
#if defined(__APPLE__)
  out->modified_s = info.st_mtimespec.tv_sec;
  out->modified_ns = info.st_mtimespec.tv_nsec;
#else
  out->modified_s = info.st_mtim.tv_sec;
  out->modified_ns = info.st_mtim.tv_nsec;
#endif
  return 0;
}

static int copy_file(const char *from, int to) {
  char buffer[16384];
  ssize_t got = -1;
  int source = open(from, O_RDONLY | O_CLOEXEC);
  while (source >= 0 && (got = read(source, buffer, sizeof buffer)) > 0)
    if (write(to, buffer, (size_t)got) != got) {
      got = -1;
      break;
    }
  if (source >= 0) close(source);
  return got == 0 ? 0 : -1;
}

/* The loader knows libraries by path: a path that means another file now needs another name. */
static void *open_copy(const char *path, char *error, size_t error_size) {
  const char *folder = getenv("TMPDIR");
  char name[4096];
  snprintf(name, sizeof name, "%s/sterna-XXXXXX", folder && *folder ? folder : "/tmp");
  int file = mkstemp(name);
  if (file < 0) {
    snprintf(error, error_size, "no copy of it can be made in %.500s", name);
    return NULL;
  }
  int failed = copy_file(path, file);
  close(file);
  void *handle = failed ? NULL : platform_library_open(name, error, error_size);
  if (failed) snprintf(error, error_size, "it cannot be copied to %.500s", name);
  unlink(name);
  return handle;
}

#endif

static library *find_path(const char *path) {
  for (library *lib = loaded; lib; lib = lib->next)
    if (strcmp(lib->path, path) == 0) return lib;
  return NULL;
}

static library *find_handle(void *handle) {
  for (library *lib = loaded; lib; lib = lib->next)
    if (lib->handle == handle) return lib;
  return NULL;
}

static int refuse_library(const char *path, const char *reason) {
  const char *hint = strstr(reason, "undefined symbol: TVMFFI")
                         ? "; it is made for the tvm_ffi runtime, which must be loaded before it "
                           "(in Python: import tvm_ffi)"
                         : "";
  return sterna_set_errorf("ValueError", "cannot load '%s': %s%s", path, reason, hint);
}

/* The file at this path is loaded already, but was another one then. */
static int was_replaced(const char *path, const file_identity *file) {
  platform_lock(&library_mutex);
  library *known = find_path(path);
  int replaced = known && memcmp(&known->file, file, sizeof *file) != 0;
  platform_unlock(&library_mutex);
  return replaced;
}

/* Adds a library to the list, or finds it there; either way with one more user. The handle passes over. */
static library *enlist(const char *path, const file_identity *file, void *handle) {
  size_t length = strlen(path);
  library *fresh = memory_try_allocate(sizeof *fresh + length + 1, 16);
  platform_lock(&library_mutex);
  library *lib = find_handle(handle);
  if (!lib && fresh) {
    library *stale = find_path(path);
    if (stale) stale->path[0] = 0; /* the path means the new file from now on */
    lib = fresh;
    *lib = (library){loaded, handle, 0, 0, 0, NULL, *file};
    lib->foreign = foreign_found_in(handle);
    lib->closeable = platform_library_symbol(handle, "__sterna__closeable") != NULL;
    memcpy(lib->path, path, length + 1);
    loaded = lib;
  }
  if (lib) lib->users++;
  platform_unlock(&library_mutex);
  if (lib != fresh) {
    memory_release(fresh);
    platform_library_close(handle); /* the list holds one reference already, or memory ran out */
  }
  return lib;
}

int library_open(const char *path, library **out) {
  char error[1024] = "";
  file_identity file;
  if (binary_check(path)) return -1;
  char *full = full_path(path);
  if (!full || identify(full, &file)) {
    free(full);
    return refuse_library(path, "it cannot be read");
  }
  /* No lock is held here: a library's initializers may call anything. */
  void *handle = was_replaced(full, &file) ? open_copy(full, error, sizeof error)
                                           : platform_library_open(full, error, sizeof error);
  library *lib = handle ? enlist(full, &file, handle) : NULL;
  free(full);
  if (!handle) return refuse_library(path, error);
  if (!lib) return error_out_of_memory();
  *out = lib;
  return 0;
}

void *library_symbol(library *lib, const char *name) {
  return platform_library_symbol(lib->handle, name);
}

int library_is_foreign(const library *lib) { return lib->foreign; }

static void set_context(library *lib, sterna_module *module) {
  void **context = library_symbol(lib, "__tvm_ffi__library_ctx");
  if (context) *context = module;
  lib->module = module;
}

sterna_module *library_adopt(library *lib, sterna_module *candidate) {
  platform_lock(&library_mutex);
  sterna_module *module = lib->module;
  if (!module || !object_try_retain((sterna_object *)module)) {
    module = candidate;
    set_context(lib, candidate);
  }
  platform_unlock(&library_mutex);
  return module;
}

static void unlink_library(library *lib) {
  for (library **at = &loaded; *at; at = &(*at)->next)
    if (*at == lib) {
      *at = lib->next;
      return;
    }
}

void library_release(library *lib, sterna_module *module) {
  platform_lock(&library_mutex);
  if (lib->module == module) set_context(lib, NULL);
  int closes = --lib->users == 0 && lib->closeable;
  if (closes) unlink_library(lib);
  platform_unlock(&library_mutex);
  if (closes) {
    platform_library_close(lib->handle);
    memory_release(lib);
  }
}

/* The libraries themselves stay: others may hold pointers into them. */
void library_shutdown(void) {
  platform_lock(&library_mutex);
  library *lib = loaded;
  loaded = NULL;
  platform_unlock(&library_mutex);
  while (lib) {
    library *next = lib->next;
    memory_release(lib);
    lib = next;
  }
}

void library_before_fork(void) { platform_lock(&library_mutex); }

void library_after_fork(void) { platform_unlock(&library_mutex); }

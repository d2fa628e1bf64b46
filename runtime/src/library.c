/* The shared libraries that are loaded, each once, with the module over it. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(_WIN32) && !defined(__wasm__)
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
  int closing;           /* the loader may still know it, but nobody else uses it any more */
  int foreign;           /* made for another runtime */
  int users;             /* modules over it, and those who are about to make some */
  sterna_module *module; /* the one that is handed out: a weak reference */
  const symbols *adopted; /* under that module and others, until all of these are gone */
  file_identity file;
  char path[];
};

static library *loaded;
static platform_mutex library_mutex = PLATFORM_MUTEX_INIT;

#if defined(_WIN32) || defined(__wasm__)

#if defined(_WIN32)
static char *full_path(const char *path) { return _fullpath(NULL, path, 0); }
#else
static char *full_path(const char *path) { return strdup(path); }
#endif

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
  const char *folder = platform_variable("TMPDIR");
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

/* Where files cannot be told apart the path decides. */
static int is_same_file(const library *lib, const char *path, const file_identity *file) {
  return memcmp(&lib->file, file, sizeof *file) == 0 &&
         (file->inode || strcmp(lib->path, path) == 0);
}

/* Its module is gone, but not all that it imported: their code knows them by one variable each, so
   there cannot be others beside them. */
static int is_orphaned(const library *lib) {
  return lib->adopted && !object_is_alive((sterna_object *)lib->module);
}

static library *find_file(const char *path, const file_identity *file) {
  for (library *lib = loaded; lib; lib = lib->next)
    if (!lib->closing && !is_orphaned(lib) && is_same_file(lib, path, file)) return lib;
  return NULL;
}

/* Another library under this path or in this file, which the loader would take for this one. */
static int is_taken(const char *path, const file_identity *file) {
  for (library *lib = loaded; lib; lib = lib->next)
    if (strcmp(lib->path, path) == 0 ||
        (file->inode && lib->file.inode == file->inode && lib->file.device == file->device))
      return 1;
  return 0;
}

static library *find_handle(void *handle) {
  for (library *lib = loaded; lib; lib = lib->next)
    if (!lib->closing && lib->handle == handle) return lib;
  return NULL;
}

static int refuse_library(const char *path, const char *reason) {
  const char *hint = strstr(reason, "undefined symbol: TVMFFI")
                         ? "; it is made for the tvm_ffi runtime, which must be loaded before it "
                           "(in Python: import tvm_ffi)"
                         : "";
  return sterna_set_errorf("ValueError", "cannot load '%s': %s%s", path, reason, hint);
}

/* Adds a library to the list, or finds it there; either way with one more user. Both pass over. */
static library *enlist(library *fresh, void *handle) {
  /* No lock is held while the loader is asked: it may be running initializers that need ours. */
  fresh->handle = handle;
  const sterna_host **host = platform_library_symbol(handle, "__sterna__host");
  fresh->foreign = foreign_found_in(handle); /* and remembered, so it must stay */
  fresh->closeable = !fresh->foreign && platform_library_symbol(handle, "__sterna__closeable");
  platform_lock(&library_mutex);
  library *lib = find_handle(handle);
  if (!lib) lib = find_file(fresh->path, &fresh->file);
  if (!lib) {
    if (host) *host = sterna_get_host(); /* by one thread, before anybody gets at the functions */
    lib = fresh;
    lib->next = loaded;
    loaded = lib;
  }
  lib->users++;
  int same = lib->handle == handle;
  platform_unlock(&library_mutex);
  if (lib != fresh) { /* another thread was faster */
    if (same || fresh->closeable) platform_library_close(handle);
    memory_release(fresh);
  }
  return lib;
}

/* The library of this file with one more user, or null; taken: it must be loaded as a copy. */
static library *find_loaded(const char *path, const file_identity *file, int *taken) {
  platform_lock(&library_mutex);
  library *lib = find_file(path, file);
  if (lib) lib->users++;
  *taken = is_taken(path, file);
  platform_unlock(&library_mutex);
  return lib;
}

static int open_file(const char *path, const char *full, const file_identity *file, library **out) {
  char error[1024] = "";
  int taken;
  library *lib = find_loaded(full, file, &taken);
  if (lib) {
    *out = lib;
    return 0;
  }
  if (seal_is_broken(full))
    return refuse_library(path, "the file is damaged: it is not what it was sealed as; export it anew");
  size_t size = strlen(full) + 1;
  library *fresh = memory_allocate(sizeof *fresh + size, 16);
  if (!fresh) return -1;
  memset(fresh, 0, sizeof *fresh);
  fresh->file = *file;
  memcpy(fresh->path, full, size);
  /* No lock is held here: a library's initializers may call anything. */
  void *handle = taken ? open_copy(full, error, sizeof error)
                       : platform_library_open(full, error, sizeof error);
  if (!handle) {
    memory_release(fresh);
    return refuse_library(path, error);
  }
  *out = enlist(fresh, handle);
  return 0;
}

int library_open(const char *path, library **out) {
  file_identity file;
  if (binary_check(path)) return -1;
  char *full = full_path(path);
  int failed = !full || identify(full, &file) ? refuse_library(path, "it cannot be read")
                                              : open_file(path, full, &file, out);
  free(full);
  return failed;
}

void *library_symbol(library *lib, const char *name) {
  return platform_library_symbol(lib->handle, name);
}

int library_is_foreign(const library *lib) { return lib->foreign; }

sterna_module *library_adopt(library *lib, sterna_module *candidate, symbols *under) {
  sterna_object *before = NULL;
  platform_lock(&library_mutex);
  sterna_module *module = lib->module;
  if (!module || !object_try_retain((sterna_object *)module)) {
    module = NULL;
    if (!lib->adopted) {
      before = (sterna_object *)lib->module;
      object_retain_weak((sterna_object *)candidate);
      module = lib->module = candidate;
      lib->adopted = under->several ? under : NULL;
      symbols_publish(under);
    }
  }
  platform_unlock(&library_mutex);
  object_release_weak(before);
  return module;
}

void library_forget(void **context, const sterna_module *module) {
  platform_lock(&library_mutex);
  if (*context == module) *context = NULL;
  platform_unlock(&library_mutex);
}

static void free_library(library *lib) {
  object_release_weak((sterna_object *)lib->module);
  memory_release(lib);
}

static void unlink_library(library *lib) {
  for (library **at = &loaded; *at; at = &(*at)->next)
    if (*at == lib) {
      *at = lib->next;
      return;
    }
}

/* Some libraries the system never unloads, many made from C++ among them: their entries stay. */
static void close_library(library *lib) {
  platform_library_close(lib->handle);
  void *there = platform_library_find(lib->path);
  int stays = there == lib->handle;
  platform_lock(&library_mutex);
  /* Another thread may have opened and listed it meanwhile: then this entry would be a second one. */
  if (find_handle(lib->handle)) stays = 0;
  lib->closing = lib->closeable = !stays;
  if (!stays) unlink_library(lib);
  platform_unlock(&library_mutex);
  if (stays) return;
  if (there) platform_library_close(there);
  free_library(lib);
}

void library_release(library *lib, const symbols *under) {
  platform_lock(&library_mutex);
  if (lib->adopted == under) lib->adopted = NULL;
  int closes = --lib->users == 0 && lib->closeable;
  lib->closing = closes;
  platform_unlock(&library_mutex);
  if (closes) close_library(lib);
}

void library_keep(library *lib) {
  platform_lock(&library_mutex);
  lib->closeable = 0;
  lib->users--;
  platform_unlock(&library_mutex);
}

/* The libraries themselves stay: others may hold pointers into them. So do entries in use. */
void library_shutdown(void) {
  library *unused = NULL;
  platform_lock(&library_mutex);
  for (library **at = &loaded; *at;) {
    library *lib = *at;
    if (lib->users) {
      at = &lib->next;
      continue;
    }
    *at = lib->next;
    lib->next = unused;
    unused = lib;
  }
  platform_unlock(&library_mutex);
  while (unused) {
    library *next = unused->next;
    free_library(unused);
    unused = next;
  }
}

void library_before_fork(void) { platform_lock(&library_mutex); }

void library_after_fork(void) { platform_unlock(&library_mutex); }

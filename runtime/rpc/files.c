/* The functions for files, and for libraries in them. */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tar.h"

/* The number of the part that a library is taken out of an archive to; uploads have those below. */
enum { EXTRACTED = MOST_UPLOADS };

/* ---- files in pieces ---- */

static void forget_upload(upload *u) {
  if (u->file >= 0) close(u->file);
  sterna_any_release(&u->name);
  u->file = -1;
}

/* The upload of a name that is under way, else a free place; null when there is none. */
static upload *find_upload(session *s, sterna_bytes name) {
  upload *free_one = NULL;
  for (int i = 0; i < MOST_UPLOADS; i++) {
    upload *u = &s->uploads[i];
    sterna_bytes own = {NULL, 0};
    if (u->file < 0) free_one = u;
    if (u->file >= 0 && !sterna_as_string(&u->name, &own) && own.size == name.size &&
        !memcmp(own.data, name.data, name.size))
      return u;
  }
  return free_one;
}

static int write_piece(int file, const char *data, size_t size) {
  while (size) {
    ssize_t put = write(file, data, size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return sterna_set_errorf("OSError", "a file of the session: %s", strerror(errno));
    data += put;
    size -= (size_t)put;
  }
  return 0;
}

static int begin_upload(session *s, upload *u, sterna_bytes name) {
  if (u->file >= 0) forget_upload(u);
  if (sterna_string(name.data, name.size, &u->name)) return -1;
  u->size = 0;
  if (!workspace_begin_part(s->files, (int)(u - s->uploads), &u->file)) return 0;
  forget_upload(u);
  return -1;
}

static int add_piece(session *s, upload *u, sterna_bytes name, int64_t offset, sterna_bytes data, int is_last) {
  if (offset == 0 && begin_upload(s, u, name)) return -1;
  if (u->file < 0 || offset < 0 || (uint64_t)offset != u->size)
    return sterna_set_errorf("ValueError", "a piece of '%.*s' for the offset %lld came out of order",
                             (int)name.size, name.data, (long long)offset);
  if (s->disk_limit && workspace_used(s->files) + data.size > s->disk_limit)
    return sterna_set_errorf("OSError", "'%.*s' does not fit: the session's files may take %llu bytes",
                             (int)name.size, name.data, (unsigned long long)s->disk_limit);
  if (write_piece(u->file, data.data, data.size)) return -1;
  u->size += data.size;
  return is_last ? workspace_name_part(s->files, (int)(u - s->uploads), name) : 0;
}

int builtin_upload(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_bytes name, data;
  int64_t offset, is_last;
  (void)ret;
  if (sterna_as_string(&args[0], &name) || sterna_as_int(&args[1], &offset) ||
      sterna_as_bytes(&args[2], &data) || sterna_as_int(&args[3], &is_last) || workspace_check_name(name))
    return -1;
  upload *u = find_upload(s, name);
  if (!u) return sterna_set_errorf("ValueError", "more than %d uploads are under way", MOST_UPLOADS);
  int failed = add_piece(s, u, name, offset, data, is_last != 0);
  if (failed) workspace_drop_part(s->files, (int)(u - s->uploads));
  if (failed || is_last) forget_upload(u);
  return failed;
}

int builtin_download(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_bytes name;
  int64_t offset, most;
  uint64_t size = 0;
  int file = -1;
  if (sterna_as_string(&args[0], &name) || sterna_as_int(&args[1], &offset) || sterna_as_int(&args[2], &most) ||
      workspace_open(s->files, name, &size, &file))
    return -1;
  uint64_t left = offset < 0 || (uint64_t)offset > size ? 0 : size - (uint64_t)offset;
  size_t wanted = most < 0 ? 0 : (uint64_t)most < left ? (size_t)most : (size_t)left, have = 0;
  if (wanted > s->most_head) wanted = s->most_head; /* more would not fit into the answer */
  char *data = malloc(wanted ? wanted : 1);
  while (data && have < wanted) {
    ssize_t got = pread(file, data + have, wanted - have, (off_t)(offset + (int64_t)have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += (size_t)got;
  }
  close(file);
  int failed = data ? sterna_bytes_value(data, have, ret)
                    : sterna_set_error("MemoryError", "no memory for a piece of a file");
  free(data);
  return failed;
}

int builtin_remove(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_bytes name;
  (void)ret;
  return sterna_as_string(&args[0], &name) || workspace_delete(s->files, name) ? -1 : 0;
}

int builtin_listdir(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_bytes name;
  return sterna_as_string(&args[0], &name) || workspace_list(s->files, name, ret) ? -1 : 0;
}

/* ---- libraries ---- */

static int ends_with(sterna_bytes name, const char *end) {
  size_t size = strlen(end);
  return name.size > size && !memcmp(name.data + name.size - size, end, size);
}

/* Says of which file the error is that the runtime has set, whose text begins with a path of its own. */
static int blame(sterna_bytes name) {
  const char *reason = strstr(sterna_last_error(), "': ");
  char text[512];
  snprintf(text, sizeof text, "%s", reason ? reason + 3 : sterna_last_error());
  return sterna_set_errorf("ValueError", "cannot load '%.*s': %s", (int)name.size, name.data, text);
}

static int copy_part(int from, uint64_t offset, uint64_t size, int to) {
  char buffer[16384];
  while (size) {
    size_t now = size < sizeof buffer ? (size_t)size : sizeof buffer;
    ssize_t got = pread(from, buffer, now, (off_t)offset);
    if (got <= 0) return sterna_set_error("OSError", "the archive cannot be read");
    if (write_piece(to, buffer, (size_t)got)) return -1;
    offset += (uint64_t)got;
    size -= (uint64_t)got;
  }
  return 0;
}

/* Takes the library out of an archive, to the part that is kept for this. */
static int extract_library(session *s, sterna_bytes name) {
  uint64_t whole = 0, offset = 0, size = 0;
  int archive = -1, file = -1;
  if (workspace_open(s->files, name, &whole, &archive)) return -1;
  int found = tar_find(archive, "lib.so", &offset, &size);
  int failed = found < 0 ? blame(name) : found ? 0 : -1;
  if (!found)
    sterna_set_errorf("ValueError", "cannot load '%.*s': it holds no lib.so; export it anew", (int)name.size,
                      name.data);
  failed = failed || workspace_begin_part(s->files, EXTRACTED, &file) ||
           copy_part(archive, offset, size, file);
  if (file >= 0) close(file);
  close(archive);
  return failed ? -1 : 0;
}

static int refuse_form_of_file(sterna_bytes name) {
  return sterna_set_errorf("ValueError",
                           "cannot load '%.*s': a server without Python loads .so and .tar; export the "
                           "module as one of these",
                           (int)name.size, name.data);
}

int builtin_load_module(session *s, const sterna_any *args, sterna_any *ret) {
  char path[2048];
  sterna_bytes name;
  sterna_module *module = NULL;
  if (sterna_as_string(&args[0], &name)) return -1;
  int is_archive = ends_with(name, ".tar");
  if (!is_archive && workspace_path(s->files, name, path, sizeof path)) return -1;
  if (is_archive && extract_library(s, name)) return -1;
  if (is_archive) workspace_part_path(s->files, EXTRACTED, path, sizeof path);
  if (!is_archive && !ends_with(name, ".so") && !ends_with(name, ".dylib")) return refuse_form_of_file(name);
  int failed = sterna_module_load(path, &module) ? blame(name) : 0;
  if (is_archive) workspace_drop_part(s->files, EXTRACTED);
  if (!failed) *ret = sterna_any_object(module);
  return failed;
}

/* The shared library of an archive gets the archive's name with .so behind it. */
int builtin_link(session *s, const sterna_any *args, sterna_any *ret) {
  char path[2048];
  sterna_bytes name;
  if (sterna_as_string(&args[0], &name)) return -1;
  if (!ends_with(name, ".tar")) {
    if (workspace_path(s->files, name, path, sizeof path)) return -1;
    if (!ends_with(name, ".so") && !ends_with(name, ".dylib")) return refuse_form_of_file(name);
    return sterna_string(name.data, name.size, ret);
  }
  if (extract_library(s, name)) return -1;
  int length = snprintf(path, sizeof path, "%.*s.so", (int)name.size, name.data);
  return workspace_name_part(s->files, EXTRACTED, (sterna_bytes){path, (size_t)length}) ||
                 sterna_string(path, (size_t)length, ret)
             ? -1
             : 0;
}

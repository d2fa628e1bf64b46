/*
 * A session's folder. Names come from the client: each part is opened by itself, relative to the one
 * before and without following links, so that no name leads out, whatever the folder holds.
 */
#include "workspace.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC }; /* how folders are opened */
enum { MOST_PARTS = 16, LONGEST_NAME = 512 };

/* ---- names ---- */

static int refuse_name(sterna_bytes name, const char *reason) {
  int shown = name.size < 200 ? (int)name.size : 200;
  return sterna_set_errorf("ValueError", "the file name '%.*s' %s", shown, name.data, reason);
}

static int no_file(sterna_bytes name, int code) {
  const char *kind = code == ENOENT || code == ENOTDIR ? "FileNotFoundError" : "OSError";
  if (code == ELOOP) return refuse_name(name, "is a link, which are not followed");
  return sterna_set_errorf(kind, "the file '%.*s' of the session: %s", (int)name.size, name.data,
                           strerror(code));
}

/* Cuts a name into parts that can be opened one by one. */
static int cut(sterna_bytes name, char room[LONGEST_NAME], const char *parts[MOST_PARTS], int *count) {
  if (name.size >= LONGEST_NAME) return refuse_name(name, "is too long");
  if (!name.size) return refuse_name(name, "is empty");
  if (memchr(name.data, 0, name.size)) return refuse_name(name, "holds a zero");
  memcpy(room, name.data, name.size);
  room[name.size] = 0;
  if (strchr(room, '\\') || (isalpha((unsigned char)room[0]) && room[1] == ':'))
    return refuse_name(name, "is one of Windows; name files with / between their parts");
  if (room[0] == '/') return refuse_name(name, "is absolute; name files relative to the session's folder");
  *count = 0;
  for (char *at = room; at;) {
    char *slash = strchr(at, '/');
    if (slash) *slash = 0;
    if (!*at || !strcmp(at, ".."))
      return refuse_name(name, "has an empty part or '..'; it must lie in the session's folder");
    if (*count == MOST_PARTS) return refuse_name(name, "lies too deep");
    if (strcmp(at, ".")) parts[(*count)++] = at;
    at = slash ? slash + 1 : NULL;
  }
  return *count ? 0 : refuse_name(name, "is the session's folder itself");
}

int workspace_check_name(sterna_bytes name) {
  char room[LONGEST_NAME];
  const char *parts[MOST_PARTS];
  int count;
  return cut(name, room, parts, &count);
}

/* The open folder that the last part of a name lies in; makes the folders in between if it may. */
static int open_parent(const workspace *w, sterna_bytes name, int make, char room[LONGEST_NAME],
                       const char **last, int *out) {
  const char *parts[MOST_PARTS];
  int count = 0, folder = dup(w->folder);
  if (folder < 0) return no_file(name, errno);
  if (cut(name, room, parts, &count)) {
    close(folder);
    return -1;
  }
  for (int i = 0; i + 1 < count; i++) {
    if (make) mkdirat(folder, parts[i], 0700);
    int next = openat(folder, parts[i], FOLDER);
    int code = errno;
    close(folder);
    if (next < 0) return no_file(name, code);
    folder = next;
  }
  *last = parts[count - 1];
  *out = folder;
  return 0;
}

/* ---- files ---- */

/* Only plain files: others, such as pipes, could make one wait. */
int workspace_open(const workspace *w, sterna_bytes name, uint64_t *size, int *out) {
  char room[LONGEST_NAME];
  const char *last = NULL;
  struct stat info;
  int folder = -1;
  if (open_parent(w, name, 0, room, &last, &folder)) return -1;
  int file = openat(folder, last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), code = errno;
  close(folder);
  if (file < 0) return no_file(name, code);
  if (fstat(file, &info) || !S_ISREG(info.st_mode)) {
    close(file);
    return refuse_name(name, "is no plain file");
  }
  if (info.st_nlink != 1) {
    close(file);
    return refuse_name(name, "is that of a file with other names, too");
  }
  *size = (uint64_t)info.st_size;
  *out = file;
  return 0;
}

int workspace_path(const workspace *w, sterna_bytes name, char *out, size_t room) {
  uint64_t size;
  int file = -1;
  if (workspace_open(w, name, &size, &file)) return -1;
  close(file);
  int length = snprintf(out, room, "%s/files/%.*s", w->path, (int)name.size, name.data);
  return length < 0 || (size_t)length >= room ? refuse_name(name, "is too long") : 0;
}

static void part_name(int number, char out[16]) { snprintf(out, 16, "%d.so", number); }

int workspace_begin_part(const workspace *w, int number, int *file) {
  char own[16];
  part_name(number, own);
  unlinkat(w->parts, own, 0);
  *file = openat(w->parts, own, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700);
  return *file < 0 ? sterna_set_errorf("OSError", "no file can be made: %s", strerror(errno)) : 0;
}

int workspace_name_part(const workspace *w, int number, sterna_bytes name) {
  char room[LONGEST_NAME], own[16];
  const char *last = NULL;
  int folder = -1;
  part_name(number, own);
  if (open_parent(w, name, 1, room, &last, &folder)) return -1;
  int failed = renameat(w->parts, own, folder, last), code = errno;
  close(folder);
  return failed ? no_file(name, code) : 0;
}

void workspace_drop_part(const workspace *w, int number) {
  char own[16];
  part_name(number, own);
  unlinkat(w->parts, own, 0);
}

void workspace_part_path(const workspace *w, int number, char *out, size_t room) {
  snprintf(out, room, "%s/parts/%d.so", w->path, number);
}

/* ---- folders ---- */

/* Takes over the open folder. Deep ones cost a file each: what is deeper than that stays. */
static void empty_folder(int folder, int depth) {
  DIR *listing = fdopendir(folder);
  if (!listing) {
    close(folder);
    return;
  }
  for (struct dirent *entry; (entry = readdir(listing));) {
    const char *name = entry->d_name;
    if (!strcmp(name, ".") || !strcmp(name, "..") || unlinkat(folder, name, 0) == 0 || !depth) continue;
    (void)!fchmodat(folder, name, 0700, 0);
    int inner = openat(folder, name, FOLDER);
    if (inner >= 0) empty_folder(inner, depth - 1);
    unlinkat(folder, name, AT_REMOVEDIR);
  }
  closedir(listing);
}

/* Takes over the open folder. */
static uint64_t used_in(int folder, int depth) {
  uint64_t bytes = 0;
  DIR *listing = folder < 0 ? NULL : fdopendir(folder);
  if (!listing) return 0;
  for (struct dirent *entry; (entry = readdir(listing));) {
    struct stat info;
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW)) continue;
    if (S_ISREG(info.st_mode)) bytes += (uint64_t)info.st_size;
    if (S_ISDIR(info.st_mode) && depth)
      bytes += used_in(openat(folder, entry->d_name, FOLDER), depth - 1);
  }
  closedir(listing);
  return bytes;
}

uint64_t workspace_used(const workspace *w) {
  return used_in(open(w->path, FOLDER), 200);
}

int workspace_delete(const workspace *w, sterna_bytes name) {
  char room[LONGEST_NAME];
  const char *last = NULL;
  int folder = -1, code = 0;
  if (open_parent(w, name, 0, room, &last, &folder)) return -1;
  if (unlinkat(folder, last, 0)) {
    code = errno;
    int inner = openat(folder, last, FOLDER);
    if (inner >= 0) empty_folder(inner, 64);
    if (inner >= 0) code = unlinkat(folder, last, AT_REMOVEDIR) ? errno : 0;
  }
  close(folder);
  return code ? no_file(name, code) : 0;
}

static int by_text(const void *a, const void *b) {
  return strcmp(((const sterna_any *)a)->v_c_str, ((const sterna_any *)b)->v_c_str);
}

/* Adds a copy of a name to a growing array. */
static int add_name(sterna_any **names, size_t *count, const char *name) {
  sterna_any *longer = realloc(*names, (*count + 1) * sizeof **names);
  char *copy = longer ? strdup(name) : NULL;
  if (longer) *names = longer;
  if (!copy) return sterna_set_error("MemoryError", "no memory for the list of files");
  longer[(*count)++] = sterna_any_c_string(copy);
  return 0;
}

static int list_folder(DIR *listing, sterna_any *out) {
  sterna_any *names = NULL;
  size_t count = 0;
  int failed = 0;
  for (struct dirent *entry; !failed && (entry = readdir(listing));)
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
      failed = add_name(&names, &count, entry->d_name);
  if (count) qsort(names, count, sizeof *names, by_text);
  if (!failed) failed = sterna_list(names, (int64_t)count, out);
  while (count) free((char *)names[--count].v_c_str);
  free(names);
  return failed;
}

int workspace_list(const workspace *w, sterna_bytes name, sterna_any *out) {
  char room[LONGEST_NAME];
  const char *last = ".";
  int folder = dup(w->folder);
  if (name.size) {
    if (folder >= 0) close(folder);
    if (open_parent(w, name, 0, room, &last, &folder)) return -1;
  }
  int inner = openat(folder, last, FOLDER), code = errno;
  close(folder);
  DIR *listing = inner < 0 ? NULL : fdopendir(inner);
  if (!listing) return no_file(name, code);
  int failed = list_folder(listing, out);
  closedir(listing);
  return failed;
}

static int make_folder(int root, const char *name) {
  return mkdirat(root, name, 0700) ? -1 : openat(root, name, FOLDER);
}

int workspace_create(workspace *w) {
  const char *base = getenv("TMPDIR");
  *w = (workspace){-1, -1, ""};
  int length = snprintf(w->path, sizeof w->path - 600, "%s/sterna-rpc-XXXXXX", base && *base ? base : "/tmp");
  if (length < 0 || (size_t)length >= sizeof w->path - 600 || !mkdtemp(w->path))
    return sterna_set_errorf("OSError", "no folder can be made in %.300s: %s", w->path, strerror(errno));
  int root = open(w->path, FOLDER);
  w->folder = make_folder(root, "files");
  w->parts = make_folder(root, "parts");
  if (root >= 0) close(root);
  if (w->folder >= 0 && w->parts >= 0) return 0;
  sterna_set_errorf("OSError", "'%.300s': %s", w->path, strerror(errno));
  workspace_remove(w);
  return -1;
}

void workspace_remove(workspace *w) {
  int root = open(w->path, FOLDER);
  if (root >= 0) empty_folder(root, 200);
  rmdir(w->path);
  if (w->folder >= 0) close(w->folder);
  if (w->parts >= 0) close(w->parts);
  w->folder = w->parts = -1;
}

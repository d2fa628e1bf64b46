/* The thread-local error. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  sterna_error error;
  char *backtrace; /* owned, or null while there is none */
} error_object;

static void free_error(void *self, int flags);

/* One after the other: a chain may be long, and the stack is not. */
static void release_causes(sterna_object *cause) {
  while (cause) {
    sterna_object *next = NULL;
    if (cause->deleter == free_error && object_is_only_mine(cause)) {
      next = ((sterna_error *)cause)->cause;
      ((sterna_error *)cause)->cause = NULL;
    }
    sterna_release(cause);
    cause = next;
  }
}

static void free_error(void *self, int flags) {
  error_object *e = self;
  if (flags & 1) {
    memory_release(e->backtrace);
    release_causes(e->error.cause);
    sterna_release(e->error.context);
  }
  if (flags & 2) memory_release(self);
}

static void update_backtrace(void *self, const sterna_bytes *text, int32_t mode) {
  error_object *e = self;
  size_t kept = mode == 1 ? e->error.backtrace.size : 0;
  char *joined = memory_try_allocate(kept + text->size + 1, 1);
  if (!joined) return; /* a backtrace is a courtesy */
  if (kept) memcpy(joined, e->error.backtrace.data, kept);
  if (text->size) memcpy(joined + kept, text->data, text->size);
  joined[kept + text->size] = 0;
  memory_release(e->backtrace);
  e->backtrace = joined;
  e->error.backtrace.data = joined;
  e->error.backtrace.size = kept + text->size;
}

static void leave_backtrace(void *self, const sterna_bytes *text, int32_t mode) {
  (void)self;
  (void)text;
  (void)mode;
}

/* Raised when there is no memory for an error. Never freed: its count starts far from zero. */
#define NO_MEMORY_TEXT "out of memory"
static error_object no_memory = {
    {{((uint64_t)1 << 32) | (1u << 30), STERNA_ERROR, 0, {NULL}},
     {"MemoryError", 11},
     {NO_MEMORY_TEXT, sizeof NO_MEMORY_TEXT - 1},
     {"", 0},
     leave_backtrace,
     NULL,
     NULL},
    NULL};

/* ---- one slot per thread ---- */

static void PLATFORM_SLOT_CALLBACK drop_at_thread_end(void *error) { sterna_release(error); }

static platform_slot error_slot;
static atomic_int slot_state; /* 0 not made, 1 made, 2 cannot be made */
static platform_mutex slot_mutex = PLATFORM_MUTEX_INIT;

static int have_slot(void) {
  int state = atomic_load_explicit(&slot_state, memory_order_acquire);
  if (!state) {
    platform_lock(&slot_mutex);
    state = atomic_load(&slot_state);
    if (!state) {
      state = platform_slot_create(&error_slot, drop_at_thread_end) ? 2 : 1;
      atomic_store_explicit(&slot_state, state, memory_order_release);
    }
    platform_unlock(&slot_mutex);
  }
  return state == 1;
}

static sterna_error *current(void) { return have_slot() ? platform_slot_get(error_slot) : NULL; }

/* Takes over the reference. */
static void set_current(sterna_error *error) {
  sterna_error *before = current();
  if (!have_slot() || platform_slot_set(error_slot, error)) sterna_release(error);
  else sterna_release(before);
}

/* ---- making and raising ---- */

int sterna_error_create(const char *kind, const char *message, sterna_error *cause,
                        sterna_object *context, sterna_error **out) {
  REQUIRE(kind);
  REQUIRE(message);
  REQUIRE(out);
  size_t kind_size = strlen(kind), message_size = strlen(message);
  error_object *e = memory_allocate(sizeof *e + kind_size + message_size + 2, 16);
  if (!e) return -1;
  char *kind_copy = (char *)(e + 1), *message_copy = kind_copy + kind_size + 1;
  memcpy(kind_copy, kind, kind_size + 1);
  memcpy(message_copy, message, message_size + 1);
  object_init(&e->error.header, STERNA_ERROR, free_error);
  e->error.kind = (sterna_bytes){kind_copy, kind_size};
  e->error.message = (sterna_bytes){message_copy, message_size};
  e->error.backtrace = (sterna_bytes){"", 0};
  e->error.update_backtrace = update_backtrace;
  e->error.cause = (sterna_object *)cause;
  e->error.context = context;
  e->backtrace = NULL;
  sterna_retain(cause);
  sterna_retain(context);
  *out = &e->error;
  return 0;
}

int sterna_raise(sterna_error *error) {
  REQUIRE(error);
  sterna_retain(error);
  foreign_raise(error);
  set_current(error);
  return -1;
}

int error_out_of_memory(void) { return sterna_raise(&no_memory.error); }

static int raise_new(const char *kind, const char *message, sterna_error *cause) {
  sterna_error *error;
  if (sterna_error_create(kind, message, cause, NULL, &error)) return -1;
  sterna_raise(error);
  sterna_release(error);
  return -1;
}

int sterna_set_error(const char *kind, const char *message) { return raise_new(kind, message, NULL); }

int sterna_set_errorf(const char *kind, const char *format, ...) {
  REQUIRE(format);
  char small[512], *text = small;
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(small, sizeof small, format, args);
  if (length >= (int)sizeof small) {
    text = memory_allocate((size_t)length + 1, 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
  }
  va_end(again);
  va_end(args);
  if (text) sterna_set_error(kind, length < 0 ? format : text);
  if (text != small) memory_release(text);
  return -1;
}

int sterna_wrap_error(const char *kind, const char *message) {
  sterna_error *cause = sterna_take_error();
  raise_new(kind, message, cause);
  sterna_release(cause);
  return -1;
}

int error_prefix(const char *format, const char *name) {
  sterna_error *cause = sterna_take_error(), *error;
  const char *kind = cause ? cause->kind.data : "RuntimeError";
  const char *message = cause ? cause->message.data : "it failed without saying why";
  size_t size = strlen(format) + strlen(name) + strlen(message) + 3;
  char *text = memory_allocate(size, 1);
  if (text) {
    int used = snprintf(text, size, format, name);
    snprintf(text + used, size - (size_t)used, ": %s", message);
    if (sterna_error_create(kind, text, cause, NULL, &error) == 0) {
      sterna_raise(error);
      sterna_release(error);
    }
    memory_release(text);
  }
  sterna_release(cause);
  return -1;
}

int error_type(const sterna_any *value, const char *expected) {
  return sterna_set_errorf("TypeError", "expected %s, got %s", expected,
                           sterna_type_name(value->type_index));
}

int error_null(const char *argument) {
  return sterna_set_errorf("ValueError", "the argument %s is null", argument);
}

/* ---- reading ---- */

/* An error of the other runtime is newer than one here: those raised here are laid there too. */
static sterna_error *newest(void) {
  sterna_error *theirs = foreign_take_error();
  if (!theirs) return current();
  foreign_raise(theirs); /* it stays there as well */
  if (theirs == current()) sterna_release(theirs);
  else set_current(theirs);
  return current();
}

const char *sterna_last_error(void) {
  sterna_error *error = newest();
  return error ? error->message.data : "";
}

const char *sterna_last_error_kind(void) {
  sterna_error *error = newest();
  return error ? error->kind.data : "";
}

void sterna_clear_error(void) { sterna_release(sterna_take_error()); }

sterna_error *sterna_take_error(void) {
  sterna_error *theirs = foreign_take_error(), *ours = current();
  if (ours) platform_slot_set(error_slot, NULL);
  if (!theirs) return ours;
  sterna_release(ours);
  return theirs;
}

void error_before_fork(void) { platform_lock(&slot_mutex); }

void error_after_fork(void) { platform_unlock(&slot_mutex); }

/* The error of each thread. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

static void kind_and_message(void) {
  check_text(sterna_last_error(), "");
  check_text(sterna_last_error_kind(), "");
  check(sterna_take_error() == NULL);
  check_fails(sterna_set_error("TypeError", "this"), "TypeError", "this");
  check_fails(sterna_set_error("MyError", ""), "MyError", "");
  check_text(sterna_last_error(), "");
  check_fails(sterna_set_errorf("ValueError", "%d and %s", 5, "six"), "ValueError", "5 and six");
  /* What an error says may be used to make the next. */
  check_fails(sterna_set_error(sterna_last_error_kind(), sterna_last_error()), "ValueError",
              "5 and six");
  check_fails(sterna_set_errorf("IndexError", "%s!", sterna_last_error()), "IndexError",
              "5 and six!");
  check_fails(sterna_wrap_error(sterna_last_error_kind(), sterna_last_error()), "IndexError",
              "six!");
  sterna_clear_error();
  check_text(sterna_last_error(), "");
  sterna_clear_error();
}

static void formatted_of_every_size(void) {
  static char text[3000];
  for (int size = 0; size < (int)sizeof text - 1; size += size < 480 || size > 540 ? 41 : 1) {
    memset(text, 'a' + size % 26, sizeof text);
    check(sterna_set_errorf("E", "%.*s", size, text) == -1);
    check(strlen(sterna_last_error()) == (size_t)size);
    check(memcmp(sterna_last_error(), text, (size_t)size) == 0);
  }
  /* A format that cannot be printed still leaves an error. */
  static const wchar_t broken[] = {(wchar_t)0x7fffffff, 0};
  sterna_clear_error();
  check(sterna_set_errorf("ValueError", "text %ls", broken) == -1);
  check_text(sterna_last_error_kind(), "ValueError");
}

static void cause_chain(void) {
  sterna_set_error("OSError", "the disk is gone");
  check_fails(sterna_wrap_error("ValueError", "the model cannot be read"), "ValueError", "model");
  check_fails(sterna_wrap_error("RuntimeError", "it failed"), "RuntimeError", "it failed");
  sterna_error *error = sterna_take_error();
  check_text(sterna_last_error(), "");
  check(error && error->cause && error->header.type_index == STERNA_ERROR);
  sterna_error *cause = (sterna_error *)error->cause;
  check_text(cause->message.data, "the model cannot be read");
  check(cause->message.size == 24 && cause->kind.size == 10);
  cause = (sterna_error *)cause->cause;
  check_text(cause->kind.data, "OSError");
  check(cause->cause == NULL);
  sterna_retain(cause); /* held by somebody else too: it outlives the chain */
  sterna_release(error);
  check_text(cause->message.data, "the disk is gone");
  sterna_release(cause);

  check_fails(sterna_wrap_error("ValueError", "without a cause"), "ValueError", "without");
  error = sterna_take_error();
  check(error->cause == NULL);
  sterna_release(error);
}

/* A caller that tries again and again makes a long chain; ending it must not need a deep stack. */
static void long_chain(void) {
  sterna_error *middle = NULL;
  for (int i = 0; i < 300000; i++) {
    sterna_wrap_error("ValueError", "again");
    if (i == 200000) {
      middle = sterna_take_error();
      sterna_raise(middle);
    }
  }
  sterna_clear_error();
  int depth = 0;
  for (sterna_object *at = &middle->header; at; at = ((sterna_error *)at)->cause) depth++;
  check(depth == 200001);
  sterna_release(middle);
}

static int context_ends;

static void end_context(void *self, int flags) {
  (void)self;
  if (flags & 1) context_ends++;
}

static void create_and_raise(void) {
  sterna_object context = {((uint64_t)1 << 32) | 1, STERNA_OBJECT, 0, {end_context}};
  sterna_error *cause, *error;
  context_ends = 0;
  check(sterna_error_create("A", "a", NULL, &context, &cause) == 0);
  check(sterna_error_create("B", "b", cause, &context, &error) == 0);
  check_text(sterna_last_error(), ""); /* made, not raised */
  check((context.ref_counts & 0xffff) == 3 && (cause->header.ref_counts & 0xffff) == 2);
  check(error->cause == &cause->header && error->context == &context);
  sterna_release(cause);
  check_fails(sterna_raise(error), "B", "b");
  check((error->header.ref_counts & 0xffff) == 2); /* what is passed in stays the caller's */
  check_fails(sterna_raise(error), "B", "b");
  check((error->header.ref_counts & 0xffff) == 2);
  check(sterna_take_error() == error);
  sterna_release(error);
  check(context_ends == 0);
  sterna_release(error);
  check((context.ref_counts & 0xffff) == 1 && context_ends == 0);
  sterna_release(&context);
  check(context_ends == 1);
}

static void backtraces(void) {
  sterna_error *error;
  sterna_bytes first = {"first\n", 6}, second = {"second\n", 7}, none = {NULL, 0};
  check(sterna_error_create("A", "a", NULL, NULL, &error) == 0);
  check(error->backtrace.size == 0 && *error->backtrace.data == 0);
  error->update_backtrace(error, &first, 1);
  error->update_backtrace(error, &second, 1);
  check_text(error->backtrace.data, "first\nsecond\n");
  error->update_backtrace(error, &none, 1);
  error->update_backtrace(error, &error->backtrace, 1); /* out of itself */
  check_text(error->backtrace.data, "first\nsecond\nfirst\nsecond\n");
  error->update_backtrace(error, &first, 0);
  check_text(error->backtrace.data, "first\n");
  check_fail_at(1, 1);
  error->update_backtrace(error, &second, 1);
  check_fail_at(0, 0);
  check_text(error->backtrace.data, "first\n"); /* a courtesy: without memory it stays as it was */
  sterna_release(error);
}

/* ---- threads ---- */

static void *have_own_errors(void *number) {
  char text[40];
  check_text(sterna_last_error(), "");
  for (int i = 0; i < 3000; i++) {
    snprintf(text, sizeof text, "error %d of thread %d", i, *(int *)number);
    sterna_set_error("ValueError", text);
    check_text(sterna_last_error(), text);
    if (i % 3 == 0) sterna_wrap_error("TypeError", "wrapped");
    if (i % 5 == 0) sterna_release(sterna_take_error());
  }
  sterna_set_error("ValueError", "left behind when the thread ends");
  return NULL;
}

static void threads_apart(void) {
  enum { THREADS = 8 };
  pthread_t threads[THREADS];
  int numbers[THREADS];
  sterna_set_error("KeyError", "the first thread's");
  long live = check_live();
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    pthread_create(&threads[i], NULL, have_own_errors, &numbers[i]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  check_text(sterna_last_error(), "the first thread's");
  check(check_live() == live); /* what a thread leaves is freed when it ends */
}

static void *raise_it(void *error) {
  for (int i = 0; i < 5000; i++) {
    sterna_raise(error);
    if (i % 2) sterna_release(sterna_take_error());
  }
  return NULL;
}

static void one_error_in_many_threads(void) {
  pthread_t threads[4];
  sterna_error *error;
  check(sterna_error_create("A", "shared", NULL, NULL, &error) == 0);
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, raise_it, error);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  check((error->header.ref_counts & 0xffffffff) == 1);
  sterna_release(error);
}

/* ---- without memory ---- */

static void *run_out_of_memory(void *data) {
  (void)data;
  for (int i = 0; i < 100; i++)
    check_fails(sterna_set_error("A", "a"), "MemoryError", "out of memory");
  return NULL;
}

static void out_of_memory(void) {
  check_fail_at(1, 1);
  check_fails(sterna_set_error("ValueError", "there is no room for this"), "MemoryError",
              "out of memory");
  sterna_error *first = sterna_take_error();
  check(first != NULL && first->header.deleter == NULL);
  uint64_t counts = first->header.ref_counts;
  for (int i = 0; i < 200000; i++) { /* there is one for everybody, as often as needed */
    check(sterna_set_errorf("A", "%d", i) == -1);
    check(sterna_wrap_error("B", "b") == -1);
    sterna_error *error = sterna_take_error();
    check(error == first);
    sterna_release(error);
  }
  check(first->header.ref_counts == counts);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run_out_of_memory, NULL);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  check(first->header.ref_counts == counts);
  sterna_error *error = NULL;
  check_fails(sterna_error_create("A", "a", NULL, NULL, &error), "MemoryError", "out of memory");
  check(error == NULL);
  sterna_bytes text = {"x", 1};
  first->update_backtrace(first, &text, 0);
  check(first->backtrace.size == 0);
  static char large[5000];
  memset(large, 'x', sizeof large - 1);
  check_fails(sterna_set_errorf("A", "%s", large), "MemoryError", "out of memory");
  check_fail_at(0, 0);
  check_fails(sterna_wrap_error("ValueError", "now there is room"), "ValueError", "room");
  error = sterna_take_error();
  check(error->cause == &first->header);
  sterna_release(error);
  sterna_release(first);
}

/* Letting go of the error before may run code that uses errors itself. */
static void set_another(void *self) {
  (void)self;
  sterna_set_error("ValueError", "from inside");
  sterna_clear_error();
}

static int no_call(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  (void)args;
  (void)n;
  (void)ret;
  return 0;
}

static void errors_inside_errors(void) {
  sterna_function *function;
  sterna_error *error;
  check(sterna_function_create(no_call, NULL, set_another, &function) == 0);
  check(sterna_error_create("A", "a", NULL, &function->header, &error) == 0);
  sterna_release(function);
  sterna_raise(error);
  sterna_release(error);
  sterna_clear_error();
  check_text(sterna_last_error(), "");
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"kind_and_message", kind_and_message},
      {"formatted_of_every_size", formatted_of_every_size},
      {"cause_chain", cause_chain},
      {"long_chain", long_chain},
      {"create_and_raise", create_and_raise},
      {"backtraces", backtraces},
      {"threads_apart", threads_apart},
      {"one_error_in_many_threads", one_error_in_many_threads},
      {"out_of_memory", out_of_memory},
      {"errors_inside_errors", errors_inside_errors},
  };
  return CASES(cases);
}

/*
 * Another runtime of the same ABI in this process, TVM's own, keeps its errors in a place of its own.
 * Functions of both may call each other, so an error raised here is laid there too, and one that a
 * function reports but that is not found here is fetched from there.
 */
#include "internal.h"

#include <string.h>

typedef void (*set_raised)(void *error);
typedef void (*move_from_raised)(void **error);

static _Atomic(void *) known_set, known_move;

int foreign_found_in(void *handle) {
  void *set = platform_library_symbol(handle, "TVMFFIErrorSetRaised");
  void *move = platform_library_symbol(handle, "TVMFFIErrorMoveFromRaised");
  if (!set || !move) return 0;
  atomic_store(&known_set, set);
  atomic_store(&known_move, move);
  return 1;
}

static void *foreign_symbol(_Atomic(void *) *known, const char *name) {
  void *address = atomic_load_explicit(known, memory_order_acquire);
  return address ? address : platform_process_symbol(name);
}

void foreign_raise(sterna_error *error) {
  void *address = foreign_symbol(&known_set, "TVMFFIErrorSetRaised");
  set_raised set;
  memcpy(&set, &address, sizeof set);
  if (set) set(error);
}

sterna_error *foreign_take_error(void) {
  void *address = foreign_symbol(&known_move, "TVMFFIErrorMoveFromRaised"), *error = NULL;
  move_from_raised move;
  memcpy(&move, &address, sizeof move);
  if (move) move(&error);
  return error;
}

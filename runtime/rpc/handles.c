/* The things that a session owns and its client knows by number. */
#include "handles.h"

#include <stdlib.h>

static uint64_t handle_of(uint32_t generation, uint32_t index) {
  return (uint64_t)generation << 32 | (index + 1);
}

/* The slot of a handle that is in use, or null. */
static handle_slot *slot_of(const handles *h, uint64_t handle) {
  uint32_t index = (uint32_t)handle - 1;
  if (!(uint32_t)handle || index >= h->used) return NULL;
  handle_slot *slot = &h->slots[index];
  return slot->object && slot->generation == handle >> 32 ? slot : NULL;
}

static int make_room(handles *h) {
  if (h->first_free || h->used < h->room) return 0;
  uint32_t room = h->room ? 2 * h->room : 64;
  handle_slot *longer = room > MOST_HANDLES ? NULL : realloc(h->slots, room * sizeof *longer);
  if (!longer) return sterna_set_error("MemoryError", "the session holds too many things; let go of some");
  h->slots = longer;
  h->room = room;
  return 0;
}

int handles_add(handles *h, void *object, uint64_t bytes, uint64_t *handle) {
  if (make_room(h)) return -1;
  uint32_t index = h->first_free ? h->first_free - 1 : h->used++;
  handle_slot *slot = &h->slots[index];
  if (h->first_free)
    h->first_free = slot->next;
  else
    slot->generation = 0;
  slot->next = h->newest;
  h->newest = index + 1;
  slot->object = object;
  slot->bytes = bytes;
  h->bytes += bytes;
  sterna_retain(object);
  *handle = handle_of(slot->generation, index);
  return 0;
}

sterna_object *handles_find(const handles *h, uint64_t handle, int32_t type_index) {
  const handle_slot *slot = slot_of(h, handle);
  if (slot && slot->object->type_index == type_index) return slot->object;
  if (slot)
    sterna_set_errorf("TypeError", "the handle %llu is %s, not %s", (unsigned long long)handle,
                      sterna_type_name(slot->object->type_index), sterna_type_name(type_index));
  else
    sterna_set_errorf("ValueError", "the session has nothing under the handle %llu; was it freed?",
                      (unsigned long long)handle);
  return NULL;
}

void handles_free(handles *h, uint64_t handle) {
  handle_slot *slot = slot_of(h, handle);
  if (!slot) return;
  sterna_object *object = slot->object;
  h->bytes -= slot->bytes;
  slot->object = NULL;
  slot->generation++;
  slot->next = h->first_free;
  h->first_free = (uint32_t)handle;
  sterna_release(object);
}

void handles_begin(handles *h) { h->newest = 0; }

void handles_undo(handles *h) {
  while (h->newest) {
    uint32_t index = h->newest - 1;
    h->newest = h->slots[index].next;
    handles_free(h, handle_of(h->slots[index].generation, index));
  }
}

void handles_end(handles *h) {
  for (uint32_t i = 0; i < h->used; i++) sterna_release(h->slots[i].object);
  free(h->slots);
  *h = (handles){NULL, 0, 0, 0, 0, 0};
}

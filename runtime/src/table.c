/*
 * A hash table (open addressing) from names to pointers. Its users hold a lock around it, so it sets no
 * error when memory runs out: dropping the error before it could run anybody's code.
 */
#include "internal.h"

#include <string.h>

static char table_gone[1]; /* marks an entry whose name was removed */

int table_is_live(const struct table_entry *entry) { return entry->name && entry->name != table_gone; }

static size_t hash_name(const char *name, size_t size) {
  uint64_t h = 1469598103934665603u; /* FNV-1a */
  for (size_t i = 0; i < size; i++) h = (h ^ (unsigned char)name[i]) * 1099511628211u;
  return (size_t)(h ^ (h >> 32));
}

static struct table_entry *find_entry(const table *t, const char *name, size_t size) {
  if (!t->capacity) return NULL;
  for (size_t i = hash_name(name, size);; i++) {
    struct table_entry *entry = &t->entries[i & (t->capacity - 1)];
    if (!entry->name) return NULL;
    if (entry->name != table_gone && strncmp(entry->name, name, size) == 0 && !entry->name[size])
      return entry;
  }
}

void **table_find_sized(const table *t, const char *name, size_t size) {
  struct table_entry *entry = find_entry(t, name, size);
  return entry ? &entry->value : NULL;
}

void **table_find(const table *t, const char *name) { return table_find_sized(t, name, strlen(name)); }

static void insert_entry(table *t, char *name, void *value) {
  size_t i = hash_name(name, strlen(name));
  while (t->entries[i & (t->capacity - 1)].name) i++;
  t->entries[i & (t->capacity - 1)] = (struct table_entry){name, value};
  t->used++;
  t->live++;
}

static int grow_table(table *t) {
  table bigger = {NULL, 16, 0, 0};
  while (bigger.capacity < t->live * 4) bigger.capacity *= 2;
  bigger.entries = memory_try_allocate(bigger.capacity * sizeof *bigger.entries, 16);
  if (!bigger.entries) return -1;
  memset(bigger.entries, 0, bigger.capacity * sizeof *bigger.entries);
  for (size_t i = 0; i < t->capacity; i++)
    if (table_is_live(&t->entries[i])) insert_entry(&bigger, t->entries[i].name, t->entries[i].value);
  memory_release(t->entries);
  *t = bigger;
  return 0;
}

int table_put(table *t, const char *name, void *value) {
  if ((t->used + 1) * 4 > t->capacity * 3 && grow_table(t)) return -1;
  size_t size = strlen(name) + 1;
  char *copy = memory_try_allocate(size, 1);
  if (!copy) return -1;
  memcpy(copy, name, size);
  insert_entry(t, copy, value);
  return 0;
}

void *table_remove(table *t, const char *name) {
  struct table_entry *entry = find_entry(t, name, strlen(name));
  if (!entry) return NULL;
  void *value = entry->value;
  memory_release(entry->name);
  *entry = (struct table_entry){table_gone, NULL};
  t->live--;
  return value;
}

void table_free(table *t) {
  for (size_t i = 0; i < t->capacity; i++)
    if (table_is_live(&t->entries[i])) memory_release(t->entries[i].name);
  memory_release(t->entries);
  *t = (table){NULL, 0, 0, 0};
}

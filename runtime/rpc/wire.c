/* Heads of frames as bytes. */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

const void *get_bytes(reader *r, uint64_t size) {
  if (r->broken || size > (uint64_t)(r->end - r->at)) {
    r->broken = 1;
    return NULL;
  }
  const uint8_t *found = r->at;
  r->at += size;
  return found;
}

uint64_t get_number(reader *r, int bytes) {
  const uint8_t *at = get_bytes(r, (uint64_t)bytes);
  uint64_t number = 0;
  for (int i = 0; at && i < bytes; i++) number |= (uint64_t)at[i] << (8 * i);
  return number;
}

/* The bytes that a first byte announces, and the smallest number that needs as many. */
static int sequence_length(uint8_t first, uint32_t *least) {
  if (first < 0x80) return *least = 0, 1;
  if (first >= 0xc2 && first < 0xe0) return *least = 0x80, 2;
  if (first >= 0xe0 && first < 0xf0) return *least = 0x800, 3;
  if (first >= 0xf0 && first < 0xf5) return *least = 0x10000, 4;
  return 0;
}

/* The length of the character at the beginning, or 0 when it is none. */
static size_t character_length(const uint8_t *at, size_t left) {
  uint32_t least = 0;
  int length = sequence_length(*at, &least);
  if (!length || (size_t)length > left) return 0;
  uint32_t code = length == 1 ? *at : *at & (0x7fu >> length);
  for (int i = 1; i < length; i++) {
    if ((at[i] & 0xc0) != 0x80) return 0;
    code = code << 6 | (at[i] & 0x3f);
  }
  return code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : (size_t)length;
}

int is_utf8(const void *text, size_t size) {
  const uint8_t *at = text, *end = at + size;
  while (at < end) {
    size_t length = character_length(at, (size_t)(end - at));
    if (!length) return 0;
    at += length;
  }
  return 1;
}

static void check_text(reader *r) {
  uint64_t size = get_number(r, 4);
  const void *text = get_bytes(r, size);
  if (text && !is_utf8(text, (size_t)size)) r->broken = 1;
}

static void check_dimensions(reader *r, uint64_t most) {
  uint64_t count = get_number(r, 4);
  if (count > most) r->broken = 1;
  for (uint64_t i = 0; i < count && !r->broken; i++)
    if ((int64_t)get_number(r, 8) < 0) r->broken = 1;
}

/* A type that has a name and is what the name says: so none of 0 bits or 0 lanes. */
static void check_dtype(reader *r) {
  char name[32];
  DLDataType type, named;
  type.code = (uint8_t)get_number(r, 1);
  type.bits = (uint8_t)get_number(r, 1);
  type.lanes = (uint16_t)get_number(r, 2);
  sterna_dtype_name(type, name);
  if (sterna_dtype_parse(name, strlen(name), &named) || named.code != type.code || named.bits != type.bits ||
      named.lanes != type.lanes)
    r->broken = 1;
}

static int check_value(reader *r, int depth) {
  int tag = (int)get_number(r, 1);
  switch (tag) {
    case TAG_NONE:
    case TAG_FALSE:
    case TAG_TRUE: break;
    case TAG_INT:
    case TAG_FLOAT:
    case TAG_DEVICE: get_bytes(r, 8); break;
    case TAG_DTYPE: check_dtype(r); break;
    case TAG_STR: check_text(r); break;
    case TAG_BYTES: get_bytes(r, get_number(r, 4)); break;
    case TAG_SHAPE: get_bytes(r, 8 * get_number(r, 4)); break;
    case TAG_LIST: {
      uint64_t count = get_number(r, 4);
      if (depth == MOST_NESTED_LISTS) r->broken = 1;
      while (count-- && !r->broken) check_value(r, depth + 1);
      break;
    }
    case TAG_ARRAY:
      if (get_number(r, 1) != OWNED_BY_RECEIVER) r->broken = 1; /* clients own no arrays */
      get_bytes(r, 8 + 8 + 8);
      check_dtype(r);
      check_dimensions(r, MOST_WIRE_DIMENSIONS);
      break;
    case TAG_FUNCTION:
      if (get_number(r, 1) > OWNED_BY_RECEIVER) r->broken = 1;
      get_bytes(r, 8);
      break;
    case TAG_MODULE:
      if (get_number(r, 1) != OWNED_BY_RECEIVER) r->broken = 1; /* nor modules that run here */
      get_bytes(r, 8);
      break;
    case TAG_ERROR:
      for (int i = 0; i < 3; i++) check_text(r);
      break;
    default: r->broken = 1;
  }
  return tag;
}

int64_t check_form(const void *head, size_t size, uint8_t *tags, int room) {
  reader r = {head, (const uint8_t *)head + size, 0};
  int64_t count = 0;
  while (r.at < r.end && !r.broken) {
    int tag = check_value(&r, 0);
    if (count < room) tags[count] = (uint8_t)tag;
    count++;
  }
  return r.broken ? -1 : count;
}

/* ---- writing ---- */

void put_bytes(writer *w, const void *data, size_t size) {
  if (w->failed || !size) return;
  if (size > w->room - w->size) {
    size_t room = w->room < 256 ? 256 : w->room;
    while (room - w->size < size && room < SIZE_MAX / 2) room *= 2;
    uint8_t *longer = room - w->size < size ? NULL : realloc(w->data, room);
    if (!longer) {
      w->failed = 1;
      return;
    }
    w->data = longer;
    w->room = room;
  }
  memcpy(w->data + w->size, data, size);
  w->size += size;
}

void put_number(writer *w, uint64_t number, int bytes) {
  uint8_t little[8];
  for (int i = 0; i < bytes; i++) little[i] = (uint8_t)(number >> (8 * i));
  put_bytes(w, little, (size_t)bytes);
}

void put_tagged_int(writer *w, int64_t number) {
  put_number(w, TAG_INT, 1);
  put_number(w, (uint64_t)number, 8);
}

void put_text(writer *w, const char *text, size_t size) {
  const uint8_t *at = (const uint8_t *)text, *end = at + size;
  put_number(w, size, 4);
  while (at < end) {
    size_t length = character_length(at, (size_t)(end - at));
    put_bytes(w, length ? (const char *)at : "?", length ? length : 1);
    at += length ? length : 1;
  }
}

void put_str(writer *w, const char *text) {
  put_number(w, TAG_STR, 1);
  put_text(w, text, strlen(text));
}

void writer_free(writer *w) {
  free(w->data);
  *w = (writer){NULL, 0, 0, 0};
}

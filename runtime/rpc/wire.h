/* Heads of frames as bytes: reading what a peer sent, and writing. Numbers are little-endian. */
#ifndef STERNA_RPC_WIRE_H_
#define STERNA_RPC_WIRE_H_

#include "common.h"

/* Values on the wire. */
enum {
  TAG_NONE, TAG_FALSE, TAG_TRUE, TAG_INT, TAG_FLOAT, TAG_STR, TAG_BYTES, TAG_DTYPE, TAG_DEVICE, TAG_SHAPE,
  TAG_LIST, TAG_ARRAY, TAG_FUNCTION, TAG_MODULE, TAG_ERROR
};
enum { MOST_NESTED_LISTS = 16, MOST_WIRE_DIMENSIONS = 32 };
enum { OWNED_BY_SENDER, OWNED_BY_RECEIVER };

/* What is left of a head. Reads past its end give zeros and set broken. */
typedef struct {
  const uint8_t *at, *end;
  int broken;
} reader;

INTERNAL uint64_t get_number(reader *r, int bytes);
INTERNAL const void *get_bytes(reader *r, uint64_t size); /* null past the end */

/* Walks over a head without making anything of it: the tags of its values, at most room of them.
   Returns how many values there are, or -1 when it is malformed. */
INTERNAL int64_t check_form(const void *head, size_t size, uint8_t *tags, int room);
INTERNAL int is_utf8(const void *text, size_t size);

/* A growing block of bytes. When memory runs out it stays as it is and says so. */
typedef struct {
  uint8_t *data;
  size_t size, room;
  int failed;
} writer;

INTERNAL void put_number(writer *w, uint64_t number, int bytes);
INTERNAL void put_bytes(writer *w, const void *data, size_t size);
INTERNAL void put_tagged_int(writer *w, int64_t number);
INTERNAL void put_text(writer *w, const char *text, size_t size); /* u32 length; what is no UTF-8 becomes ? */
INTERNAL void put_str(writer *w, const char *text);               /* a STR */
INTERNAL void writer_free(writer *w);

#endif

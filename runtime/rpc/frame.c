/* Frames on a stream. */
#include "frame.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_SIZE = 16, FIRST_PIECE = 4096 };

static frame_result malformed(const char *what) {
  sterna_set_error("RPCProtocolError", what);
  return FRAME_MALFORMED;
}

/* Reads the head in pieces that double: who announces much must send it too. */
static int read_head(stream *s, frame *f, size_t size) {
  for (size_t room = FIRST_PIECE; f->head_size < size; room *= 2) {
    size_t wanted = size < room ? size : room;
    uint8_t *longer = realloc(f->head, wanted);
    if (!longer) return sterna_set_error("ConnectionError", "no memory for what the client sends");
    f->head = longer;
    if (stream_read(s, f->head + f->head_size, wanted - f->head_size)) return -1;
    f->head_size = wanted;
  }
  return 0;
}

frame_result frame_read(stream *s, frame *out) {
  uint8_t header[HEADER_SIZE];
  *out = (frame){0, NULL, 0, 0};
  int there = stream_wait(s);
  if (there <= 0) return there ? FRAME_LOST : FRAME_END;
  if (stream_read(s, header, sizeof header)) return FRAME_LOST;
  reader r = {header + 2, header + sizeof header, 0};
  if (memcmp(header, "SF", 2)) return malformed("what the client sent does not begin like a frame");
  out->kind = (int)get_number(&r, 1);
  uint64_t reserved = get_number(&r, 1), head_size = get_number(&r, 4);
  out->bulk_size = get_number(&r, 8);
  if (reserved || out->kind < FRAME_CALL || out->kind > FRAME_INIT)
    return malformed("the client sent a frame of an unknown kind");
  if (head_size > MOST_HEAD) return malformed("the head of a frame is longer than this server takes");
  if (!read_head(s, out, (size_t)head_size)) return FRAME_READ;
  frame_free(out);
  return FRAME_LOST;
}

void frame_free(frame *f) {
  free(f->head);
  f->head = NULL;
}

int frame_write(stream *s, int kind, const writer *head, uint64_t bulk_size) {
  writer header = {NULL, 0, 0, 0};
  put_bytes(&header, "SF", 2);
  put_number(&header, (uint64_t)kind, 1);
  put_number(&header, 0, 1);
  put_number(&header, head ? head->size : 0, 4);
  put_number(&header, bulk_size, 8);
  if (head && head->size < FIRST_PIECE) put_bytes(&header, head->data, head->size);
  int failed = header.failed || (head && head->failed)
                   ? sterna_set_error("MemoryError", "no memory for an answer")
                   : stream_write(s, header.data, header.size);
  if (!failed && head && head->size >= FIRST_PIECE) failed = stream_write(s, head->data, head->size);
  writer_free(&header);
  return failed;
}

/* Text that shall take no more room than this. */
static void put_short_text(writer *w, const char *text, size_t most) {
  size_t size = strlen(text);
  put_text(w, text, size < most ? size : most);
}

int frame_write_error(stream *s, const char *kind, const char *message, const char *traceback,
                      size_t most_head) {
  writer head = {NULL, 0, 0, 0};
  size_t each = most_head / 4;
  put_number(&head, TAG_ERROR, 1);
  put_short_text(&head, kind, each < 100 ? each : 100);
  put_short_text(&head, message, each);
  put_short_text(&head, traceback, each);
  int failed = frame_write(s, FRAME_EXCEPTION, &head, 0);
  writer_free(&head);
  return failed;
}

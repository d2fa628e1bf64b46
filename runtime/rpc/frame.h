/* Frames: a header, a head of values and a bulk of bytes. */
#ifndef STERNA_RPC_FRAME_H_
#define STERNA_RPC_FRAME_H_

#include "common.h"
#include "stream.h"
#include "wire.h"

enum {
  FRAME_CALL = 1, FRAME_RETURN, FRAME_EXCEPTION, FRAME_ALLOC, FRAME_COPY_TO, FRAME_COPY_FROM,
  FRAME_COPY_WITHIN, FRAME_FREE, FRAME_PING, FRAME_CLOSE, FRAME_INIT
};

enum { MOST_HEAD = 64 << 20, BULK_PIECE = 1 << 16 };

typedef struct {
  int kind;
  uint8_t *head;
  size_t head_size;
  uint64_t bulk_size; /* follows on the stream */
} frame;

typedef enum {
  FRAME_READ,
  FRAME_END,      /* the peer has closed where a frame could begin */
  FRAME_LOST,     /* the connection has failed, and the error says how */
  FRAME_MALFORMED /* likewise */
} frame_result;

/* Reads all but the bulk; then the frame is to be freed. Memory grows with what arrives. */
INTERNAL frame_result frame_read(stream *s, frame *out);
INTERNAL void frame_free(frame *f);
/* Writes all but the bulk. */
INTERNAL int frame_write(stream *s, int kind, const writer *head, uint64_t bulk_size);
/* An EXCEPTION with an error of a kind. */
INTERNAL int frame_write_error(stream *s, const char *kind, const char *message, const char *traceback,
                               size_t most_head);

#endif

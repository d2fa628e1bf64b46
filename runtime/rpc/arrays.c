/* Frames with arrays: their bytes go between the stream and the array, piece by piece. */
#include "session.h"

#include <stdlib.h>

/* What of a bulk is read and dropped when the session has no limit of its own. */
static const uint64_t most_dropped = (uint64_t)1 << 30;

static int64_t get_int(reader *head) {
  get_number(head, 1); /* the tag */
  return (int64_t)get_number(head, 8);
}

/* A part of an array's bytes as an array of bytes. */
static int part_of(sterna_ndarray *array, uint64_t offset, uint64_t size, sterna_ndarray **out) {
  const int64_t shape[1] = {(int64_t)size};
  const DLDataType byte = {kDLUInt, 8, 1};
  if (size > INT64_MAX) return sterna_set_error("ValueError", "a negative number of bytes");
  return sterna_ndarray_view(array, shape, 1, byte, offset, out);
}

static int find_part(session *s, uint64_t handle, int64_t offset, int64_t size, int is_written,
                     sterna_ndarray **out) {
  sterna_ndarray *array = (sterna_ndarray *)handles_find(&s->owned, handle, STERNA_NDARRAY);
  if (!array) return -1;
  if (offset < 0 || size < 0)
    return sterna_set_errorf("ValueError", "%lld bytes at the offset %lld of an array", (long long)size,
                             (long long)offset);
  if (is_written && sterna_ndarray_is_read_only(array))
    return sterna_set_error("ValueError", "the array is read-only: it lies in a library");
  return part_of(array, (uint64_t)offset, (uint64_t)size, out);
}

/* Moves all bytes of an array of bytes from the stream to it, or the other way. */
static int move_bulk(session *s, sterna_ndarray *part, int is_sent) {
  uint64_t size = (uint64_t)part->tensor.shape[0];
  void *buffer = malloc(BULK_PIECE);
  int failed = buffer ? 0 : sterna_set_error("MemoryError", "no memory to copy an array with");
  for (uint64_t done = 0; !failed && done < size;) {
    size_t now = size - done < BULK_PIECE ? (size_t)(size - done) : BULK_PIECE;
    sterna_ndarray *piece = NULL;
    failed = part_of(part, done, now, &piece);
    if (failed) break;
    DLTensor *t = &piece->tensor;
    failed = is_sent ? sterna_tensor_copy_to_memory(t, buffer, now) || stream_write(&s->peer, buffer, now)
                     : stream_read(&s->peer, buffer, now) || sterna_tensor_copy_from_memory(t, buffer, now);
    sterna_release(piece);
    done += now;
  }
  free(buffer);
  if (failed) s->ended = 1; /* nobody knows where in the bulk the stream is */
  return failed ? -1 : 0;
}

/* Reads a bulk that nobody wants, so that the next frame can be found. */
static void drop_bulk(session *s, uint64_t size) {
  char buffer[4096];
  uint64_t most = s->array_limit ? s->array_limit : most_dropped;
  if (size > most) session_end(s);
  while (size && !s->ended) {
    size_t now = size < sizeof buffer ? (size_t)size : sizeof buffer;
    if (stream_read(&s->peer, buffer, now)) s->ended = 1;
    size -= now;
  }
}

/* ---- making arrays ---- */

/* Bytes of the array that ALLOC's values describe. */
static int describe(const sterna_any values[3], DLTensor *out, size_t *bytes) {
  const int64_t *shape;
  int64_t ndim;
  *out = (DLTensor){.data = NULL};
  if (sterna_as_device(&values[0], &out->device) || sterna_as_dtype(&values[1], &out->dtype) ||
      sterna_as_shape(&values[2], &shape, &ndim))
    return -1;
  out->shape = (int64_t *)shape;
  out->ndim = (int32_t)ndim;
  return sterna_tensor_bytes(out, bytes);
}

static int allocate(session *s, const DLTensor *wanted, size_t bytes, sterna_ndarray **out) {
  uint64_t limit = s->array_limit, taken = s->owned.bytes;
  if (limit && (taken > limit || bytes > limit - taken))
    return sterna_set_errorf("MemoryError",
                             "an array of %llu bytes does not fit: the session's arrays may take %llu bytes "
                             "and take %llu",
                             (unsigned long long)bytes, (unsigned long long)limit, (unsigned long long)taken);
  return sterna_ndarray_empty(wanted->shape, wanted->ndim, wanted->dtype, wanted->device, out);
}

static void answer_array(session *s, sterna_ndarray *array, uint64_t bytes) {
  writer head = {NULL, 0, 0, 0};
  if (value_encode_array(s, array, bytes, &head))
    session_answer(s, -1, NULL);
  else
    session_send(s, FRAME_RETURN, &head, 0);
  writer_free(&head);
}

static void serve_alloc(session *s, reader *head, uint64_t bulk) {
  sterna_any values[3] = {sterna_any_none(), sterna_any_none(), sterna_any_none()};
  sterna_ndarray *array = NULL, *part = NULL;
  DLTensor wanted;
  size_t bytes = 0;
  int failed = 0;
  for (int i = 0; i < 3 && !failed; i++) failed = value_decode(s, head, &values[i]);
  failed = failed || describe(values, &wanted, &bytes);
  if (!failed && bulk && bulk != bytes) {
    sterna_set_error("RPCProtocolError", "the bytes of an array are not as many as its shape calls for");
    session_end(s);
  } else {
    failed = failed || allocate(s, &wanted, bytes, &array) || (bulk && part_of(array, 0, bytes, &part));
    if (failed)
      drop_bulk(s, bulk);
    else if (part)
      move_bulk(s, part, 0);
  }
  if (!s->ended && failed) session_answer(s, -1, NULL);
  if (!s->ended && !failed) answer_array(s, array, bytes);
  sterna_release(part);
  sterna_release(array);
  sterna_any_release(&values[2]);
}

/* ---- copying ---- */

static void serve_copy_to(session *s, reader *head, uint64_t bulk) {
  const sterna_any none = sterna_any_none();
  sterna_ndarray *part = NULL;
  uint64_t handle = (uint64_t)get_int(head);
  int failed = find_part(s, handle, get_int(head), bulk > INT64_MAX ? -1 : (int64_t)bulk, 1, &part);
  if (failed)
    drop_bulk(s, bulk);
  else
    move_bulk(s, part, 0);
  if (!s->ended) session_answer(s, failed, &none);
  sterna_release(part);
}

static void serve_copy_from(session *s, reader *head) {
  sterna_ndarray *part = NULL;
  writer none = {NULL, 0, 0, 0};
  uint64_t handle = (uint64_t)get_int(head);
  int64_t offset = get_int(head), size = get_int(head);
  put_number(&none, TAG_NONE, 1);
  if (find_part(s, handle, offset, size, 0, &part))
    session_answer(s, -1, NULL);
  else if (!session_send(s, FRAME_RETURN, &none, (uint64_t)size))
    move_bulk(s, part, 1);
  writer_free(&none);
  sterna_release(part);
}

static void serve_copy_within(session *s, reader *head) {
  const sterna_any none = sterna_any_none();
  sterna_ndarray *to = NULL, *from = NULL;
  uint64_t to_handle = (uint64_t)get_int(head);
  int64_t to_offset = get_int(head);
  uint64_t from_handle = (uint64_t)get_int(head);
  int64_t from_offset = get_int(head), size = get_int(head);
  int failed = find_part(s, to_handle, to_offset, size, 1, &to) ||
               find_part(s, from_handle, from_offset, size, 0, &from) ||
               sterna_tensor_copy(&from->tensor, &to->tensor);
  session_answer(s, failed, &none);
  sterna_release(to);
  sterna_release(from);
}

void arrays_serve(session *s, const frame *f, reader *head) {
  switch (f->kind) {
    case FRAME_ALLOC: serve_alloc(s, head, f->bulk_size); break;
    case FRAME_COPY_TO: serve_copy_to(s, head, f->bulk_size); break;
    case FRAME_COPY_FROM: serve_copy_from(s, head); break;
    default: serve_copy_within(s, head);
  }
}

/* Arrays: memory, views, copies, and DLPack in and out. */
#include "internal.h"

#include <string.h>

enum { DATA_ALIGNMENT = 64 };

typedef enum { OWNS_MEMORY, VIEWS_OBJECT, HOLDS_DLPACK, HOLDS_DLPACK_VERSIONED } holding;

typedef struct {
  sterna_ndarray array;
  holding holds;
  const sterna_device_api *api; /* that gave the block, when it owns one */
  void *held;                   /* the block, the owner or the DLPack structure */
  int64_t dims[]; /* shape, then strides */
} array_object;

static void free_array(void *self, int flags) {
  array_object *a = self;
  if (flags & 1) switch (a->holds) {
      case OWNS_MEMORY:
        if (a->held) a->api->release(a->api->self, a->array.tensor.device, a->held);
        break;
      case VIEWS_OBJECT: sterna_release(a->held); break;
      case HOLDS_DLPACK: {
        DLManagedTensor *managed = a->held;
        if (managed->deleter) managed->deleter(managed);
        break;
      }
      case HOLDS_DLPACK_VERSIONED: {
        DLManagedTensorVersioned *managed = a->held;
        if (managed->deleter) managed->deleter(managed);
        break;
      }
    }
  if (flags & 2) memory_release(a);
}

/* ---- sizes ---- */

static int count_bytes(const int64_t *shape, int32_t ndim, DLDataType dtype, size_t *out) {
  /* An empty array is small however long its other sides are. */
  for (int32_t i = 0; i < ndim; i++)
    if (shape[i] == 0) {
      *out = 0;
      return 0;
    }
  uint64_t bits = (uint64_t)dtype.bits * (dtype.lanes ? dtype.lanes : 1);
  for (int32_t i = 0; i < ndim; i++) {
    uint64_t extent = (uint64_t)shape[i];
    if (bits && extent > (uint64_t)INT64_MAX / bits)
      return sterna_set_error("ValueError", "the array's size does not fit in 64 bits");
    bits *= extent;
  }
  uint64_t bytes = bits / 8 + (bits % 8 != 0);
  if (bytes > SIZE_MAX / 2) return sterna_set_error("ValueError", "the array is larger than memory");
  *out = (size_t)bytes;
  return 0;
}

static int check_shape(const int64_t *shape, int32_t ndim) {
  if (ndim < 0 || (ndim && !shape))
    return sterna_set_errorf("ValueError", "an array cannot have %d dimensions", (int)ndim);
  for (int32_t i = 0; i < ndim; i++)
    if (shape[i] < 0)
      return sterna_set_errorf("ValueError", "dimension %d of the array is negative: %lld", (int)i,
                               (long long)shape[i]);
  return 0;
}

int sterna_tensor_bytes(const DLTensor *t, size_t *out) {
  REQUIRE(t);
  REQUIRE(out);
  return check_shape(t->shape, t->ndim) || count_bytes(t->shape, t->ndim, t->dtype, out) ? -1 : 0;
}

int sterna_tensor_is_compact(const DLTensor *t) {
  REQUIRE_OR(0, t);
  if (!t->strides) return 1;
  for (int32_t i = 0; i < t->ndim; i++)
    if (t->shape[i] == 0) return 1;
  uint64_t expected = 1; /* unsigned: the sizes may be nonsense */
  for (int32_t i = t->ndim - 1; i >= 0; i--) {
    if (t->shape[i] == 1) continue;
    if ((uint64_t)t->strides[i] != expected) return 0;
    expected *= (uint64_t)t->shape[i];
  }
  return 1;
}

/* ---- making ---- */

static array_object *new_array(const int64_t *shape, int32_t ndim, DLDataType dtype, DLDevice device,
                               holding holds, void *held) {
  array_object *a = memory_allocate(sizeof *a + 2 * (size_t)ndim * sizeof *a->dims, 16);
  if (!a) return NULL;
  object_init(&a->array.header, STERNA_NDARRAY, free_array);
  a->holds = holds;
  a->api = NULL;
  a->held = held;
  if (ndim) memcpy(a->dims, shape, (size_t)ndim * sizeof *shape);
  uint64_t stride = 1; /* unsigned: an empty array's strides may wrap around and mean nothing */
  for (int32_t i = ndim - 1; i >= 0; i--) {
    a->dims[ndim + i] = (int64_t)stride;
    stride *= (uint64_t)shape[i];
  }
  a->array.tensor =
      (DLTensor){NULL, device, ndim, dtype, a->dims, a->dims + ndim, 0};
  return a;
}

int sterna_ndarray_empty(const int64_t *shape, int32_t ndim, DLDataType dtype, DLDevice device,
                         sterna_ndarray **out) {
  REQUIRE(out);
  const sterna_device_api *api;
  size_t bytes;
  if (check_shape(shape, ndim) || count_bytes(shape, ndim, dtype, &bytes) || device_get(device, &api))
    return -1;
  array_object *a = new_array(shape, ndim, dtype, device, OWNS_MEMORY, NULL);
  if (!a) return -1;
  a->api = api;
  if (api->allocate(api->self, device, bytes, DATA_ALIGNMENT, &a->held)) {
    sterna_release(a);
    return -1;
  }
  a->array.tensor.data = a->held;
  *out = &a->array;
  return 0;
}

int sterna_ndarray_is_read_only(const sterna_ndarray *array) {
  REQUIRE_OR(0, array);
  return array->header.reserved == STERNA_READ_ONLY;
}

static int is_sole(const array_object *a) {
  return (uint32_t)a->array.header.ref_counts == 1 && a->array.header.deleter == free_array;
}

int sterna_ndarray_is_sole(const sterna_ndarray *array) {
  REQUIRE_OR(0, array);
  const array_object *a = (const array_object *)array;
  size_t used, whole;
  if (!is_sole(a) || sterna_ndarray_is_read_only(array) || sterna_tensor_bytes(&array->tensor, &used)) return 0;
  if (a->holds == VIEWS_OBJECT) a = a->held;
  return is_sole(a) && a->holds == OWNS_MEMORY && !sterna_tensor_bytes(&a->array.tensor, &whole) && used >= whole / 4;
}

/* On these a data pointer is a handle, to which nothing can be added. */
static int has_opaque_pointers(DLDeviceType type) {
  return type == kDLOpenCL || type == kDLVulkan || type == kDLMetal || type == kDLWebGPU;
}

static void place(DLTensor *t, void *data, uint64_t byte_offset) {
  int opaque = has_opaque_pointers(t->device.device_type);
  t->data = opaque || !data ? data : (char *)data + byte_offset;
  t->byte_offset = opaque ? byte_offset : 0;
}

void tensor_place(DLTensor *t, const DLTensor *memory, uint64_t byte_offset) {
  place(t, memory->data, memory->byte_offset + byte_offset);
}

int ndarray_over(const DLTensor *t, sterna_object *owner, int read_only, sterna_ndarray **out) {
  array_object *a = new_array(t->shape, t->ndim, t->dtype, t->device, VIEWS_OBJECT, owner);
  if (!a) return -1;
  sterna_retain(owner);
  if (read_only) a->array.header.reserved = STERNA_READ_ONLY;
  place(&a->array.tensor, t->data, t->byte_offset);
  *out = &a->array;
  return 0;
}

size_t tensor_alignment(DLDataType dtype) {
  size_t bits = (size_t)dtype.bits * dtype.lanes, power = (bits / 8) & (0 - bits / 8);
  if (bits % 8) return 1;
  return power < DATA_ALIGNMENT ? power : DATA_ALIGNMENT;
}

int sterna_ndarray_view(sterna_ndarray *array, const int64_t *shape, int32_t ndim, DLDataType dtype,
                        uint64_t byte_offset, sterna_ndarray **out) {
  REQUIRE(array);
  REQUIRE(out);
  size_t whole, part;
  if (sterna_tensor_bytes(&array->tensor, &whole) || check_shape(shape, ndim) ||
      count_bytes(shape, ndim, dtype, &part))
    return -1;
  if (byte_offset > whole || part > whole - byte_offset)
    return sterna_set_errorf("ValueError",
                             "a view of %llu bytes at offset %llu does not fit in an array of %llu bytes",
                             (unsigned long long)part, (unsigned long long)byte_offset,
                             (unsigned long long)whole);
  if (!sterna_tensor_is_compact(&array->tensor))
    return sterna_set_error("ValueError", "the array is not contiguous; view a contiguous copy");
  /* A view of a view holds what that one holds, so that no chain grows. */
  void *owner = array;
  if (array->header.deleter == free_array && ((array_object *)array)->holds == VIEWS_OBJECT)
    owner = ((array_object *)array)->held;
  array_object *a = new_array(shape, ndim, dtype, array->tensor.device, VIEWS_OBJECT, owner);
  if (!a) return -1;
  sterna_retain(owner);
  if (sterna_ndarray_is_read_only(array)) a->array.header.reserved = STERNA_READ_ONLY;
  place(&a->array.tensor, array->tensor.data, array->tensor.byte_offset + byte_offset);
  *out = &a->array;
  return 0;
}

/* ---- copying ---- */

static int is_pinned(DLDevice device) { return device.device_type == kDLCUDAHost; }

/* Memory that the host may read and write at any time; copies of pinned memory may be under way. */
static int on_host(DLDevice device) {
  return device.device_type == kDLCPU || device.device_type == kDLROCMHost ||
         device.device_type == kDLCUDAManaged || (is_pinned(device) && !sterna_device_exists(device));
}

/* Whether both are devices of one other machine, which copies between them by itself. */
static int are_together(DLDevice a, DLDevice b) {
  return (int)a.device_type >= STERNA_REMOTE_DEVICES &&
         a.device_type / STERNA_REMOTE_DEVICES == b.device_type / STERNA_REMOTE_DEVICES;
}

static int are_pair(DLDevice a, DLDevice b) { return a.device_type == kDLCUDA && is_pinned(b); }

/* Within one kind of device, or between it and the CPU, or within one other machine. */
static int copy_directly(void *to, DLDevice to_device, const void *from, DLDevice from_device,
                         size_t bytes) {
  const sterna_device_api *api;
  int is_of_target = to_device.device_type != kDLCPU && !(is_pinned(to_device) && !on_host(from_device));
  if (device_get(is_of_target ? to_device : from_device, &api)) return -1;
  return api->copy(api->self, to, to_device, from, from_device, bytes);
}

static int copy_bytes(void *to, DLDevice to_device, const void *from, DLDevice from_device,
                      size_t bytes) {
  const DLDevice host = {kDLCPU, 0};
  if (bytes && ((!to && on_host(to_device)) || (!from && on_host(from_device))))
    return sterna_set_error("ValueError", "an array of a copy has no data: its pointer is null");
  if (on_host(to_device)) to_device = host;
  if (on_host(from_device)) from_device = host;
  if (to_device.device_type == from_device.device_type || to_device.device_type == kDLCPU ||
      from_device.device_type == kDLCPU || are_together(to_device, from_device) ||
      are_pair(to_device, from_device) || are_pair(from_device, to_device))
    return copy_directly(to, to_device, from, from_device, bytes);
  void *between = memory_allocate(bytes, DATA_ALIGNMENT);
  int failed = !between || copy_directly(between, host, from, from_device, bytes) ||
               copy_directly(to, to_device, between, host, bytes);
  memory_release(between);
  return failed ? -1 : 0;
}

static void *first_byte(const DLTensor *t) {
  return t->data ? (char *)t->data + t->byte_offset : NULL;
}

static int check_compact(const DLTensor *t, const char *role) {
  if (sterna_tensor_is_compact(t)) return 0;
  return sterna_set_errorf("ValueError", "the %s of a copy must be contiguous", role);
}

int sterna_tensor_copy(const DLTensor *from, DLTensor *to) {
  REQUIRE(from);
  REQUIRE(to);
  size_t from_bytes, to_bytes;
  if (sterna_tensor_bytes(from, &from_bytes) || sterna_tensor_bytes(to, &to_bytes) ||
      check_compact(from, "source") || check_compact(to, "destination"))
    return -1;
  if (from_bytes != to_bytes)
    return sterna_set_errorf("ValueError", "cannot copy %llu bytes into an array of %llu bytes",
                             (unsigned long long)from_bytes, (unsigned long long)to_bytes);
  return copy_bytes(first_byte(to), to->device, first_byte(from), from->device, to_bytes);
}

static int check_amount(const DLTensor *t, size_t bytes) {
  size_t size;
  if (sterna_tensor_bytes(t, &size) || check_compact(t, "array")) return -1;
  if (bytes == size) return 0;
  return sterna_set_errorf("ValueError", "%llu bytes were given for an array of %llu bytes",
                           (unsigned long long)bytes, (unsigned long long)size);
}

int sterna_tensor_copy_from_memory(DLTensor *to, const void *from, size_t bytes) {
  REQUIRE(to);
  REQUIRE_IF(bytes, from);
  if (check_amount(to, bytes)) return -1;
  return copy_bytes(first_byte(to), to->device, from, (DLDevice){kDLCPU, 0}, bytes);
}

int sterna_tensor_copy_to_memory(const DLTensor *from, void *to, size_t bytes) {
  REQUIRE(from);
  REQUIRE_IF(bytes, to);
  if (check_amount(from, bytes)) return -1;
  return copy_bytes(to, (DLDevice){kDLCPU, 0}, first_byte(from), from->device, bytes);
}

/* ---- DLPack in ---- */

static int take_in(const DLTensor *t, holding holds, void *managed, int read_only,
                   sterna_ndarray **out) {
  size_t bytes;
  if (sterna_tensor_bytes(t, &bytes)) return -1;
  if (bytes && !t->data) return sterna_set_error("ValueError", "the DLPack array has no data");
  if (!sterna_tensor_is_compact(t))
    return sterna_set_error("ValueError", "the array is not contiguous; pass a contiguous copy of it");
  array_object *a = new_array(t->shape, t->ndim, t->dtype, t->device, holds, managed);
  if (!a) return -1;
  if (read_only) a->array.header.reserved = STERNA_READ_ONLY;
  place(&a->array.tensor, t->data, t->byte_offset);
  *out = &a->array;
  return 0;
}

int sterna_ndarray_from_dlpack(DLManagedTensor *from, sterna_ndarray **out) {
  REQUIRE(from);
  REQUIRE(out);
  return take_in(&from->dl_tensor, HOLDS_DLPACK, from, 0, out);
}

int sterna_ndarray_from_dlpack_versioned(DLManagedTensorVersioned *from, sterna_ndarray **out) {
  REQUIRE(from);
  REQUIRE(out);
  if (from->version.major != DLPACK_MAJOR_VERSION)
    return sterna_set_errorf("ValueError", "the array comes as DLPack %u.%u; version %d is understood",
                             from->version.major, from->version.minor, DLPACK_MAJOR_VERSION);
  if (from->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED && from->dl_tensor.dtype.bits < 8)
    return sterna_set_error("ValueError", "the array's elements are padded to bytes; pack them");
  int read_only = (from->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
  return take_in(&from->dl_tensor, HOLDS_DLPACK_VERSIONED, from, read_only, out);
}

/* ---- DLPack out ---- */

static void end_dlpack(DLManagedTensor *managed) {
  sterna_release(managed->manager_ctx);
  memory_release(managed);
}

static void end_dlpack_versioned(DLManagedTensorVersioned *managed) {
  sterna_release(managed->manager_ctx);
  memory_release(managed);
}

int sterna_ndarray_to_dlpack(sterna_ndarray *array, DLManagedTensor **out) {
  REQUIRE(array);
  REQUIRE(out);
  if (sterna_ndarray_is_read_only(array))
    return sterna_set_error("BufferError",
                            "the array is read-only, which only versioned DLPack can say");
  DLManagedTensor *managed = memory_allocate(sizeof *managed, 16);
  if (!managed) return -1;
  *managed = (DLManagedTensor){array->tensor, array, end_dlpack};
  sterna_retain(array);
  *out = managed;
  return 0;
}

int sterna_ndarray_to_dlpack_versioned(sterna_ndarray *array, DLManagedTensorVersioned **out) {
  REQUIRE(array);
  REQUIRE(out);
  DLManagedTensorVersioned *managed = memory_allocate(sizeof *managed, 16);
  if (!managed) return -1;
  uint64_t flags = sterna_ndarray_is_read_only(array) ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  *managed = (DLManagedTensorVersioned){{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                        array,
                                        end_dlpack_versioned,
                                        flags,
                                        array->tensor};
  sterna_retain(array);
  *out = managed;
  return 0;
}

/*
 * sterna.h - the Sterna runtime: everything a compiled model needs in order to run.
 *
 * This header is the manual. The runtime is C11, needs libc and threads and nothing else, and comes
 * as a static library, a shared library and a single C file (sterna.c).
 *
 * Contents
 *   1  Conventions          return codes, ownership, threads
 *   2  Arrays in memory     DLPack's structures
 *   3  Values               the 16-byte tagged value and heap objects
 *   4  Errors               kind, message, cause; one per thread
 *   5  Functions            calling convention, closures, the global registry
 *   6  Devices and arrays   allocation, copies, DLPack in and out
 *   7  Modules              shared libraries, static tables, imports
 *   8  Threads              the pool behind parallel loops
 *   9  Models               compiled models: load, set inputs, run, get outputs
 *  10  The process          allocator, version, shutdown
 *
 *
 * 1  CONVENTIONS
 *
 * Result.  A function that can fail returns int: 0 when it worked, -1 when it did not, and then the
 * calling thread's error (section 4) says why. Nothing aborts the process. On failure output
 * arguments are left alone. A null pointer that no comment allows is such a failure, a ValueError;
 * data of no bytes may be null.
 *
 * Ownership.  Objects are reference counted. What a function hands out through an output argument is
 * yours: end it with sterna_release() or sterna_any_release(). What you pass in stays yours.
 * A pointer returned directly (const char *, DLTensor *) is borrowed from the object you asked.
 *
 * Threads.  Every function may be called from every thread at any time, except the few that say
 * otherwise. Objects may be shared between threads; the numbers inside an array are yours to guard.
 *
 * Compatibility.  Values, objects, functions, errors and arrays have the binary layout of the TVM FFI
 * C ABI, and a library exports function f as the symbol __tvm_ffi_f. So functions compiled here load
 * into any host of that ABI, and the other way round.
 *
 * A library that offers one function to Python and to every other host:
 *
 *     #include "sterna.h"
 *     STERNA_FUNCTION(scale) {                       // void *self, args, n, ret
 *       DLTensor *x;
 *       if (n != 1 || sterna_as_tensor(&args[0], &x))
 *         return sterna_set_error("TypeError", "scale takes one array");
 *       for (int64_t i = 0; i < x->shape[0]; i++) ((float *)x->data)[i] *= 2;
 *       return 0;
 *     }
 *
 * and a program that calls it:
 *
 *     sterna_module *m;  sterna_function *f;  sterna_any ret = {0};
 *     if (sterna_module_load("./scale.so", &m)) { puts(sterna_last_error()); return 1; }
 *     if (sterna_module_get_function(m, "scale", 0, &f) || !f) ...
 *     sterna_any arg = sterna_any_object(array);
 *     if (sterna_function_call(f, &arg, 1, &ret)) puts(sterna_last_error());
 *     sterna_release(f);  sterna_release(m);
 */
#ifndef STERNA_H_
#define STERNA_H_

#include <stddef.h>
#include <stdint.h>

#define STERNA_VERSION_MAJOR 0
#define STERNA_VERSION_MINOR 1
#define STERNA_VERSION_PATCH 0

#if defined(_WIN32)
#define STERNA_SYMBOL_OUT __declspec(dllexport)
#define STERNA_SYMBOL_IN __declspec(dllimport)
#else
#define STERNA_SYMBOL_OUT __attribute__((visibility("default")))
#define STERNA_SYMBOL_IN
#endif

#ifdef __cplusplus
#define STERNA_EXTERN_C extern "C"
#else
#define STERNA_EXTERN_C
#endif

/* STERNA_API marks the runtime's own functions; STERNA_EXPORT marks yours. */
#if defined(STERNA_BUILD)
#define STERNA_API STERNA_SYMBOL_OUT
#elif defined(STERNA_STATIC)
#define STERNA_API
#else
#define STERNA_API STERNA_SYMBOL_IN
#endif
#define STERNA_EXPORT STERNA_EXTERN_C STERNA_SYMBOL_OUT

#if defined(__GNUC__)
#define STERNA_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define STERNA_PRINTF(format_at, first_at)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * 2  ARRAYS IN MEMORY
 *
 * DLPack 1.1's structures, so that arrays pass between frameworks without a copy. If you also
 * include dlpack.h itself, include it before this header and its definitions are used.
 *
 * The element [i0, i1, ...] lies at (char *)data + byte_offset + itemsize * (i0 * strides[0] + ...);
 * strides count elements, and a null strides pointer means row-major without gaps. No alignment
 * beyond the element's own is promised by views and by arrays that come from elsewhere; memory
 * allocated here starts on a 64-byte boundary.
 */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 1
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (1UL << 2UL)

typedef struct {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
  kDLMAIA = 17,
  kDLTrn = 18
} DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum {
  kDLInt = 0U,
  kDLUInt = 1U,
  kDLFloat = 2U,
  kDLOpaqueHandle = 3U,
  kDLBfloat = 4U,
  kDLComplex = 5U,
  kDLBool = 6U,
  kDLFloat8_e3m4 = 7U,
  kDLFloat8_e4m3 = 8U,
  kDLFloat8_e4m3b11fnuz = 9U,
  kDLFloat8_e4m3fn = 10U,
  kDLFloat8_e4m3fnuz = 11U,
  kDLFloat8_e5m2 = 12U,
  kDLFloat8_e5m2fnuz = 13U,
  kDLFloat8_e8m0fnu = 14U,
  kDLFloat6_e2m3fn = 15U,
  kDLFloat6_e3m2fn = 16U,
  kDLFloat4_e2m1fn = 17U
} DLDataTypeCode;

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;
#endif /* DLPACK_DLPACK_H_ */

/*
 * 3  VALUES
 *
 * A value is a tag and eight bytes. Numbers, devices and types sit in those bytes; everything else
 * is a counted heap object. Arguments are views: they borrow what they point to for the length of
 * the call, and may also be one of the borrowed kinds (a C string, a bare DLTensor). Results own
 * what they hold.
 */
enum sterna_type {
  STERNA_NONE = 0,
  STERNA_INT = 1,          /* v_int64 */
  STERNA_BOOL = 2,         /* v_int64, 0 or 1 */
  STERNA_FLOAT = 3,        /* v_float64 */
  STERNA_POINTER = 4,      /* v_ptr, of no known type */
  STERNA_DTYPE = 5,        /* v_dtype */
  STERNA_DEVICE = 6,       /* v_device */
  STERNA_TENSOR_VIEW = 7,  /* v_ptr is a DLTensor *; arguments only */
  STERNA_C_STRING = 8,     /* v_c_str; arguments only */
  STERNA_BYTES_VIEW = 9,   /* v_ptr is a sterna_bytes *; arguments only */
  STERNA_MOVED_OBJECT = 10,/* v_ptr is a sterna_object **; arguments only */
  STERNA_SMALL_STRING = 11,/* v_bytes holds up to 7 bytes, their number in small_len */
  STERNA_SMALL_BYTES = 12, /* likewise */
  STERNA_OBJECT = 64,      /* from here on: v_obj, counted */
  STERNA_STRING = 65,
  STERNA_BYTES = 66,
  STERNA_ERROR = 67,
  STERNA_FUNCTION_OBJECT = 68,
  STERNA_SHAPE = 69,
  STERNA_NDARRAY = 70,
  STERNA_LIST = 71,        /* an immutable sequence of values */
  STERNA_MAP = 72,
  STERNA_MODULE = 73,
  STERNA_PYTHON_OBJECT = 74
};

typedef struct {
  const char *data;
  size_t size;
} sterna_bytes;

/* In the header of an array that its owner forbids to write to; compiled functions look for it. */
#define STERNA_READ_ONLY 0x52454144u

/* The header of every heap object. The count's low half is strong, its high half weak. */
typedef struct sterna_object {
  uint64_t ref_counts;
  int32_t type_index;
  uint32_t reserved; /* of an array: STERNA_READ_ONLY, or 0 */
  union {
    void (*deleter)(void *self, int flags); /* flags: 1 end the content, 2 free the memory, 3 both */
    int64_t align_deleter;
  };
} sterna_object;

typedef struct sterna_any {
  int32_t type_index;
  union {
    uint32_t zero;
    uint32_t small_len;
  };
  union {
    int64_t v_int64;
    double v_float64;
    void *v_ptr;
    const char *v_c_str;
    sterna_object *v_obj;
    DLDataType v_dtype;
    DLDevice v_device;
    char v_bytes[8];
    uint64_t v_uint64;
  };
} sterna_any;

typedef struct sterna_function sterna_function;
typedef struct sterna_ndarray sterna_ndarray;
typedef struct sterna_module sterna_module;
typedef struct sterna_error sterna_error;

/* Adds or drops one reference. Null is allowed. */
STERNA_API void sterna_retain(void *object);
STERNA_API void sterna_release(void *object);

/* Drops what a result holds and makes it none. */
STERNA_API void sterna_any_release(sterna_any *value);

/* Turns an argument, which borrows, into a value that owns. A bare DLTensor cannot be owned. */
STERNA_API int sterna_any_own(const sterna_any *view, sterna_any *out);

/* Text is UTF-8. Text and bytes may hold zeros; their data is followed by one more zero. */
STERNA_API int sterna_string(const char *data, size_t size, sterna_any *out);
STERNA_API int sterna_bytes_value(const void *data, size_t size, sterna_any *out);
STERNA_API int sterna_list(const sterna_any *items, int64_t count, sterna_any *out);
STERNA_API int sterna_shape(const int64_t *dims, int64_t ndim, sterna_any *out);

/* Read a value as one kind. Each fails with a TypeError when the value is of another kind.
   A text or bytes result points into the value: it lives as long as the value stays in place. */
STERNA_API int sterna_as_int(const sterna_any *value, int64_t *out);     /* int or bool */
STERNA_API int sterna_as_float(const sterna_any *value, double *out);    /* float, int or bool */
STERNA_API int sterna_as_string(const sterna_any *value, sterna_bytes *out);
STERNA_API int sterna_as_bytes(const sterna_any *value, sterna_bytes *out);
STERNA_API int sterna_as_tensor(const sterna_any *value, DLTensor **out);
STERNA_API int sterna_as_function(const sterna_any *value, sterna_function **out); /* borrowed */
STERNA_API int sterna_as_module(const sterna_any *value, sterna_module **out);     /* borrowed */
STERNA_API int sterna_as_device(const sterna_any *value, DLDevice *out);
STERNA_API int sterna_as_dtype(const sterna_any *value, DLDataType *out); /* also from its name */
STERNA_API int sterna_as_list(const sterna_any *value, const sterna_any **items, int64_t *count);
STERNA_API int sterna_as_shape(const sterna_any *value, const int64_t **dims, int64_t *ndim);

/* The name of a type index, for messages: "int", "an array", ... */
STERNA_API const char *sterna_type_name(int32_t type_index);

static inline sterna_any sterna_any_none(void) {
  sterna_any v;
  v.type_index = STERNA_NONE;
  v.zero = 0;
  v.v_int64 = 0;
  return v;
}
static inline sterna_any sterna_any_int(int64_t number) {
  sterna_any v = sterna_any_none();
  v.type_index = STERNA_INT;
  v.v_int64 = number;
  return v;
}
static inline sterna_any sterna_any_bool(int truth) {
  sterna_any v = sterna_any_int(truth != 0);
  v.type_index = STERNA_BOOL;
  return v;
}
static inline sterna_any sterna_any_float(double number) {
  sterna_any v = sterna_any_none();
  v.type_index = STERNA_FLOAT;
  v.v_float64 = number;
  return v;
}
static inline sterna_any sterna_any_device(DLDeviceType type, int32_t id) {
  sterna_any v = sterna_any_none();
  v.type_index = STERNA_DEVICE;
  v.v_device.device_type = type;
  v.v_device.device_id = id;
  return v;
}
static inline sterna_any sterna_any_dtype(DLDataType dtype) {
  sterna_any v = sterna_any_none();
  v.type_index = STERNA_DTYPE;
  v.v_dtype = dtype;
  return v;
}
/* A view of text, of a tensor, of any object: an argument that borrows. */
static inline sterna_any sterna_any_c_string(const char *text) {
  sterna_any v = sterna_any_none();
  v.type_index = STERNA_C_STRING;
  v.v_c_str = text;
  return v;
}
static inline sterna_any sterna_any_tensor(DLTensor *tensor) {
  sterna_any v = sterna_any_none();
  v.type_index = STERNA_TENSOR_VIEW;
  v.v_ptr = tensor;
  return v;
}
static inline sterna_any sterna_any_object(void *object) {
  sterna_any v = sterna_any_none();
  if (object) {
    v.type_index = ((sterna_object *)object)->type_index;
    v.v_obj = (sterna_object *)object;
  }
  return v;
}

/* Type names: "float32", "int8x4", "bool", "bfloat16", "handle", "float8_e4m3fn", ... */
STERNA_API int sterna_dtype_parse(const char *name, size_t size, DLDataType *out);
/* Writes the name and a zero into a buffer of at least 32 bytes. */
STERNA_API void sterna_dtype_name(DLDataType dtype, char *buffer);

/*
 * 4  ERRORS
 *
 * An error has a kind (the name of an exception class: "TypeError", "ValueError", your own), a
 * message and possibly a cause, the error that led to it. Each thread holds at most one, set by the
 * call that failed last. It is only worth reading after a call has returned -1.
 */
struct sterna_error {
  sterna_object header;
  sterna_bytes kind, message, backtrace;
  void (*update_backtrace)(void *self, const sterna_bytes *text, int32_t mode); /* 0 replace, 1 append */
  sterna_object *cause;   /* the error before this one, or null */
  sterna_object *context; /* what the raising language wants to keep, or null */
};

/* Set the error and return -1, so that a function can end with "return sterna_set_error(...)". */
STERNA_API int sterna_set_error(const char *kind, const char *message);
STERNA_API int sterna_set_errorf(const char *kind, const char *format, ...) STERNA_PRINTF(2, 3);
/* The same, and the error that was set before becomes its cause. */
STERNA_API int sterna_wrap_error(const char *kind, const char *message);

/* Message and kind of this thread's error; empty text when there is none. */
STERNA_API const char *sterna_last_error(void);
STERNA_API const char *sterna_last_error_kind(void);
STERNA_API void sterna_clear_error(void);

/* Take the error out of the thread (null when there is none), put one in, make one. */
STERNA_API sterna_error *sterna_take_error(void);
STERNA_API int sterna_raise(sterna_error *error); /* returns -1 */
STERNA_API int sterna_error_create(const char *kind, const char *message, sterna_error *cause,
                                   sterna_object *context, sterna_error **out);

/*
 * 5  FUNCTIONS
 *
 * One calling convention for everything: an array of values in, one value out. The caller sets the
 * result to none before the call; the callee leaves it so, or puts a value there that owns.
 */
typedef int (*sterna_call)(void *self, const sterna_any *args, int32_t n, sterna_any *ret);

struct sterna_function {
  sterna_object header;
  sterna_call call; /* takes the function object itself as self */
  void *cpp_call;
};

/* A function with its own context. deleter, if any, is called with self when the last reference goes. */
STERNA_API int sterna_function_create(sterna_call call, void *self, void (*deleter)(void *self),
                                      sterna_function **out);
STERNA_API int sterna_function_call(sterna_function *function, const sterna_any *args, int32_t n,
                                    sterna_any *ret);

/* The self of a function that was made with this call; null for any other. Tells your own apart. */
STERNA_API void *sterna_function_self(const sterna_function *function, sterna_call call);

/* The process's functions by name. Registering a name twice is a ValueError unless override is set. */
STERNA_API int sterna_register(const char *name, sterna_call call, void *self,
                               void (*deleter)(void *self));
STERNA_API int sterna_register_function(const char *name, sterna_function *function, int override_it);
/* A missing name is no error: it gives null. */
STERNA_API int sterna_get_global(const char *name, sterna_function **out);
STERNA_API int sterna_remove_global(const char *name); /* ValueError when missing */
STERNA_API int sterna_list_globals(sterna_any *out);   /* a list of text, sorted */

/* Defines a function that a library exports under a name. */
#define STERNA_FUNCTION(name)                                                                  \
  STERNA_EXPORT int __tvm_ffi_##name(void *self, const sterna_any *args, int32_t n, sterna_any *ret); \
  STERNA_EXPORT int __tvm_ffi_##name(void *self, const sterna_any *args, int32_t n, sterna_any *ret)

/*
 * 6  DEVICES AND ARRAYS
 *
 * A device type is usable once something has registered how to allocate and copy there; the CPU
 * always is. When one that nobody has registered is first asked for, the library libsterna_<name>
 * beside the runtime (libsterna_opencl.so) is loaded, if there is one, and its function
 * int sterna_register_<name>(void) is called.
 */
typedef struct sterna_device_api {
  void *self;
  int (*exists)(void *self, int32_t device_id); /* 1 or 0 */
  int (*allocate)(void *self, DLDevice device, size_t bytes, size_t alignment, void **out);
  void (*release)(void *self, DLDevice device, void *block);
  /* One end is on this kind of device, the other there or on the CPU. */
  int (*copy)(void *self, void *to, DLDevice to_device, const void *from, DLDevice from_device,
              size_t bytes);
  int (*sync)(void *self, DLDevice device); /* waits until all work there is done */
} sterna_device_api;

/* A run of a model on one device. A back end that can launch all kernels of a run at once registers a
   function sterna.replay.<name>, which takes the address of this for each run and keeps what it likes
   in kept until end is called. Without nanoseconds, runs at equal addresses may be what an earlier one
   recorded; with it, the time of each step is wanted. */
typedef struct sterna_replay {
  uint64_t size; /* of this structure; it only grows */
  DLDevice device;
  int (*run_step)(void *self, int32_t step); /* from 0 to step_count - 1 */
  void *self;
  const void **addresses; /* of the inputs and outputs */
  int32_t step_count, address_count;
  uint64_t *nanoseconds; /* one for each step, or null */
  void *kept;            /* the back end's, null at first */
  void (*end)(void *kept);
} sterna_replay;

/* The table is kept by pointer and must live as long as the process. */
STERNA_API int sterna_register_device(DLDeviceType type, const sterna_device_api *api);
/* Types from here on are those of other machines: their own, plus this once for the first machine,
   twice for the second and so on. find gives the table for one, or null; null for find takes all away.
   Addresses there are whatever the table makes of them, and may be added to. */
enum { STERNA_REMOTE_DEVICES = 128 };
typedef const sterna_device_api *(*sterna_find_device)(DLDeviceType type);
STERNA_API void sterna_set_remote_devices(sterna_find_device find);
STERNA_API int sterna_device_exists(DLDevice device); /* 1 or 0 */
STERNA_API int sterna_device_sync(DLDevice device);
/* "cpu", "cuda", ...; null for a number that names no device type. */
STERNA_API const char *sterna_device_name(DLDeviceType type);

struct sterna_ndarray {
  sterna_object header;
  DLTensor tensor;
};

STERNA_API int sterna_ndarray_empty(const int64_t *shape, int32_t ndim, DLDataType dtype,
                                    DLDevice device, sterna_ndarray **out);
/* Another array over part of the same memory. */
STERNA_API int sterna_ndarray_view(sterna_ndarray *array, const int64_t *shape, int32_t ndim,
                                   DLDataType dtype, uint64_t byte_offset, sterna_ndarray **out);
/* Copies between arrays of equal size in bytes, from any device to any other. Both are compact. */
STERNA_API int sterna_tensor_copy(const DLTensor *from, DLTensor *to);
STERNA_API int sterna_tensor_copy_from_memory(DLTensor *to, const void *from, size_t bytes);
STERNA_API int sterna_tensor_copy_to_memory(const DLTensor *from, void *to, size_t bytes);
STERNA_API int sterna_tensor_is_compact(const DLTensor *tensor); /* 1 or 0 */
STERNA_API int sterna_tensor_bytes(const DLTensor *tensor, size_t *out);
STERNA_API int sterna_ndarray_is_read_only(const sterna_ndarray *array); /* 1 or 0 */
/* Whether its memory can be handed on for good: the runtime's own, which nobody else holds, and of
 * which at least a quarter is in use. 1 or 0. */
STERNA_API int sterna_ndarray_is_sole(const sterna_ndarray *array);

/* Taking an array in consumes the structure when it works. Arrays with gaps are refused. */
STERNA_API int sterna_ndarray_from_dlpack(DLManagedTensor *from, sterna_ndarray **out);
STERNA_API int sterna_ndarray_from_dlpack_versioned(DLManagedTensorVersioned *from,
                                                    sterna_ndarray **out);
/* Handing one out shares the memory; the receiver calls the structure's deleter. The unversioned
   form cannot say that an array is read-only, so it is refused for such arrays. */
STERNA_API int sterna_ndarray_to_dlpack(sterna_ndarray *array, DLManagedTensor **out);
STERNA_API int sterna_ndarray_to_dlpack_versioned(sterna_ndarray *array,
                                                  DLManagedTensorVersioned **out);

/*
 * 7  MODULES
 *
 * A module is a set of functions: a shared library, a table linked into the program, or anything
 * that answers to a name. A function keeps its module alive. Modules may import others; imports
 * form no circles. One library may hold several modules that import each other; what says so is
 * described at the top of src/blob.c.
 */
typedef struct {
  const char *name;
  sterna_call call;
} sterna_table_entry;

typedef struct sterna_module_type {
  const char *kind;
  /* Looks a function up. An unknown name is no error: it gives null. */
  int (*get_function)(sterna_module *module, void *self, const char *name, sterna_function **out);
  void (*destroy)(void *self); /* may be null */
} sterna_module_type;

/* Loads a shared library. Files that are truncated, built for another machine or for a processor with
   instructions that this one lacks, or no libraries at all are refused by name, and so are those that
   Sterna wrote and whose content has changed since (see src/seal.c; STERNA_CHECK_SEALS=0 in the
   environment leaves this out, which takes a second or more per gigabyte). A library stays loaded
   for good, since it may have handed out pointers into itself, unless it exports the symbol
   __sterna__closeable, which promises that it has not. */
STERNA_API int sterna_module_load(const char *path, sterna_module **out);
/* Code that you have linked into memory yourself, as a library would be loaded. find gives the
   address of a symbol, or null; destroy, which may be null, gets self when the last module over
   the symbols ends. On failure self stays yours. name is for messages. */
typedef void *(*sterna_find_symbol)(void *self, const char *symbol);
STERNA_API int sterna_module_from_symbols(const char *name, sterna_find_symbol find, void *self,
                                          void (*destroy)(void *self), sterna_module **out);
/* Whether this processor has what code was compiled with, as that says in its symbol __sterna__needs:
   the processor's name, then features by LLVM's names, all in one text with blanks between. Both
   functions above ask this; an error says what is lacking, of the file of a name that may be null. */
STERNA_API int sterna_check_processor(const char *name, const char *needs);
/* The table is kept by pointer. */
STERNA_API int sterna_module_from_table(const sterna_table_entry *table, size_t count,
                                        sterna_module **out);
/* Your own kind of module. type is kept by pointer; destroy gets self when the module ends. */
STERNA_API int sterna_module_create(const sterna_module_type *type, void *self, sterna_module **out);
/* A function that runs call(self, ...) and keeps the module alive; for get_function above. */
STERNA_API int sterna_module_function(sterna_module *module, sterna_call call, void *self,
                                      sterna_function **out);

STERNA_API const char *sterna_module_kind(const sterna_module *module);
STERNA_API void *sterna_module_self(const sterna_module *module); /* what create was given */
STERNA_API const sterna_module_type *sterna_module_type_of(const sterna_module *module);
/* A missing name is no error: it gives null. */
STERNA_API int sterna_module_get_function(sterna_module *module, const char *name, int query_imports,
                                          sterna_function **out);
STERNA_API int sterna_module_import(sterna_module *module, sterna_module *imported);
STERNA_API int sterna_module_clear_imports(sterna_module *module);
STERNA_API size_t sterna_module_import_count(sterna_module *module);
STERNA_API int sterna_module_get_import(sterna_module *module, size_t index, sterna_module **out);
/* For compiled code: finds a function among the imports, else in the registry, and remembers it.
   library_ctx is the value of the library's variable __tvm_ffi__library_ctx, which loading sets to
   the module. The result is borrowed from the module. A missing name is a ValueError. */
STERNA_API int sterna_module_lookup(void *library_ctx, const char *name, sterna_function **out);

/* A place in compiled code that calls a function by name. The code fills in the first three. */
typedef struct sterna_call_site {
  const char *caller; /* the function that the place is in, for messages */
  const char *name;
  void **library_ctx; /* the variable that points to the code's module, or null */
  uint64_t module_id; /* the rest is for the runtime to remember what it has found */
  sterna_function *function;
} sterna_call_site;

/* What compiled code may ask of its host. A library that exports a variable
   "const sterna_host *__sterna__host" has it set when it is loaded, and so needs no symbol of the
   runtime: it also loads where there is none, and then finds the variable null. */
typedef struct sterna_host {
  uint64_t size; /* of this structure; it only grows */
  int (*set_error)(const char *kind, const char *message);
  int (*parallel)(int (*body)(int32_t task, int32_t tasks, void *data), void *data, int32_t tasks);
  int (*num_threads)(int32_t *out);
  /* Workspace, aligned to at most 64 bytes; null when there is no memory. What is released is kept
     for the next one who asks, up to 64 MiB of it. */
  void *(*allocate)(uint64_t bytes, uint64_t alignment);
  void (*release)(void *block);
  /* Calls the function that a place names: one that the code's module imports, else a registered
     one; which, is decided at the first call. wanted is the kind of result that the code needs
     (STERNA_INT, STERNA_FLOAT or STERNA_POINTER, null for none); with STERNA_NONE it needs nothing
     and any result is dropped. */
  int (*call)(sterna_call_site *site, const sterna_any *args, int32_t n, int32_t wanted,
              sterna_any *ret);
} sterna_host;
STERNA_API const sterna_host *sterna_get_host(void);

/* Functions linked into the program itself, under their symbol names (__tvm_ffi_<prefix><name>). */
STERNA_API int sterna_register_system_symbol(const char *symbol, void *address);
STERNA_API int sterna_system_module(const char *prefix, sterna_module **out);

/* Loads a library for good and, when init is not null, calls its function int init(void). */
STERNA_API int sterna_load_extension(const char *path, const char *init);

/*
 * 8  THREADS
 *
 * sterna_parallel calls body(task, tasks, data) for every task from 0 to tasks - 1, spread over the
 * pool's threads and the caller, and returns when all are done. Tasks must not wait for each other.
 * The first failure is the call's failure; tasks that have not begun by then are left out. Regions
 * may start at once in several threads and inside each other.
 *
 * The pool has as many threads as the process may use cores, or STERNA_NUM_THREADS, else
 * TVM_NUM_THREADS, else OMP_NUM_THREADS says when the first loop asks; threads are bound to no core.
 */
typedef int (*sterna_task)(int32_t task, int32_t tasks, void *data);
STERNA_API int sterna_parallel(sterna_task body, void *data, int32_t tasks);
/* 0 restores the default. Waits for regions that are running; not to be called inside one. */
STERNA_API int sterna_set_num_threads(int32_t threads);
STERNA_API int sterna_num_threads(int32_t *out); /* the caller's thread counts */

/*
 * 9  MODELS
 *
 * A compiled model is a graph, its parameters and the functions that its nodes call. All of it is in
 * one library, or in one object file or archive that is linked into the program (an archive as a
 * whole: nothing calls what announces the model). A sterna_model runs it:
 *
 *     sterna_model *m = NULL;
 *     if (sterna_model_load("resnet18.so", &m) ||
 *         sterna_model_set_input(m, "input", pixels, sizeof pixels) ||
 *         sterna_model_run(m) || sterna_model_get_output(m, 0, scores, sizeof scores))
 *       fprintf(stderr, "%s\n", sterna_last_error());
 *     sterna_model_free(m);
 *
 * It has memory of its own for what it computes; parameters are used where they lie in the library and
 * are shared. A run allocates nothing. Only one thread at a time may use a model, any other one gets a
 * RuntimeError: for more threads, sterna_model_share it.
 */
typedef struct sterna_model sterna_model;

typedef struct {
  const char *name;
  DLDataType dtype;
  int32_t ndim;
  const int64_t *shape;
  size_t bytes;
  int is_parameter; /* the model has a value for it */
} sterna_tensor_info;

/* path: a library that holds a model; null: the model that is linked into this program. */
STERNA_API int sterna_model_load(const char *path, sterna_model **out);
/* One of several, by the name that it was built under. */
STERNA_API int sterna_model_load_named(const char *path, const char *name, sterna_model **out);
/* From parts: a graph in JSON, a module with the functions that it calls, and the devices that its
   entries lie on, the first one being the usual one. All of its inputs are yet to be set. */
STERNA_API int sterna_model_create(const char *graph, size_t size, sterna_module *functions,
                                   const DLDevice *devices, int32_t device_count, sterna_model **out);
/* Another one over the same graph and parameters. */
STERNA_API int sterna_model_share(sterna_model *model, sterna_model **out);
STERNA_API void sterna_model_free(sterna_model *model); /* null is allowed */

/* Inputs count parameters too. What an info points to lives as long as the model. */
STERNA_API int32_t sterna_model_num_inputs(const sterna_model *model);
STERNA_API int32_t sterna_model_num_outputs(const sterna_model *model);
STERNA_API int32_t sterna_model_num_nodes(const sterna_model *model);
STERNA_API int sterna_model_input_info(const sterna_model *model, int32_t index, sterna_tensor_info *out);
STERNA_API int sterna_model_output_info(const sterna_model *model, int32_t index, sterna_tensor_info *out);
STERNA_API const char *sterna_model_node_name(const sterna_model *model, int32_t index); /* or null */

/* Copies the values of an input in. An input that nobody sets is zero. */
STERNA_API int sterna_model_set_input(sterna_model *model, const char *name, const void *data, size_t bytes);
STERNA_API int sterna_model_run(sterna_model *model);
/* The same, with the nanoseconds that each node took. */
STERNA_API int sterna_model_run_timed(sterna_model *model, uint64_t *nanoseconds);
STERNA_API int sterna_model_get_output(sterna_model *model, int32_t index, void *data, size_t bytes);

/* Without copies: from now on runs read and write here. The memory stays yours and must live until it
   is replaced by other memory or by null, which stands for the model's own. An output may lie where an
   input does: it is then filled when a run has read everything. */
STERNA_API int sterna_model_bind_input(sterna_model *model, const char *name, const void *data,
                                       size_t bytes);
STERNA_API int sterna_model_bind_output(sterna_model *model, int32_t index, void *data, size_t bytes);

/* Parameters in the format of save_param_dict; those that the graph does not have are left out. */
STERNA_API int sterna_model_load_params(sterna_model *model, const void *data, size_t size);

/* The model's functions under the names of the classic API: set_input, run, get_output, ... */
STERNA_API int sterna_model_module(sterna_model *model, sterna_module **out);

/* For compiled code: an object that holds a model announces it when the program starts. */
typedef struct sterna_linked_model {
  struct sterna_linked_model *next; /* the runtime's */
  const char *name;
  const void *data;
  const sterna_table_entry *functions;
  size_t function_count;
  const sterna_host **host; /* set here, or null */
} sterna_linked_model;
STERNA_API void sterna_register_model(sterna_linked_model *model);

/*
 * 10  THE PROCESS
 */

/* All memory comes from here. Set it before anything else; later is an error. */
typedef struct sterna_allocator {
  void *self;
  void *(*allocate)(void *self, size_t bytes, size_t alignment); /* null when there is none */
  void (*release)(void *self, void *block);
} sterna_allocator;
STERNA_API int sterna_set_allocator(const sterna_allocator *allocator);

STERNA_API const char *sterna_version(void);

/* Ends the pool, empties the registry and frees what the runtime itself holds. Not needed before a
   process ends. No other thread may be inside the runtime. It can be used again afterwards. */
STERNA_API void sterna_shutdown(void);

#ifdef __cplusplus
}
#endif
#endif /* STERNA_H_ */

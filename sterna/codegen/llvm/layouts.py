"""Layouts of runtime/sterna.h; LLVM places the members by the target's rules."""

ANY = "{ i32, i32, i64 }"
"""sterna_any: type_index, zero, payload."""

TENSOR = "{ ptr, i32, i32, i32, i8, i8, i16, ptr, ptr, i64 }"
"""DLTensor: data, device type and number, ndim, code, bits, lanes, shape, strides, byte_offset."""

CALL_SITE = "{ ptr, ptr, ptr, i64, ptr }"
"""sterna_call_site: caller, name, library_ctx, module_id, function."""

HOST_TABLE = "{ i64, ptr, ptr, ptr, ptr, ptr, ptr }"
"""sterna_host: size, set_error, parallel, num_threads, allocate, release, call."""

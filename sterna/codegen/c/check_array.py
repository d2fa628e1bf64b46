"""The C function that checks a packed argument that is an array."""

from sterna.tir import wanted_array as words
from sterna.tir.wanted_array import MESSAGE_BYTES


def _fault(fault: tuple[str, str]) -> str:
    kind, text = fault
    return f'"{kind}", "{text}"'


CHECK_ARRAY = f"""\
struct sterna_wanted {{
  const char *function;
  const char *argument;
  const char *dimensions;
  const char *type_text;
  const int64_t *extents; /* -1 where any will do */
  const char *const *extent_texts;
  uint32_t type;
  int32_t ndim;
  int32_t is_written;
  int32_t device_type;
  const char *device;
}};

static int32_t sterna_wrong_argument(const struct sterna_wanted *wanted, const char *kind,
                                     const char *words, const char *end) {{
  const char *parts[4];
  char message[{MESSAGE_BYTES}];
  int32_t i, size = 0;
  parts[0] = wanted->function;
  parts[1] = wanted->argument;
  parts[2] = words;
  parts[3] = end;
  for (i = 0; i < 4; i++)
    while (*parts[i] && size < {MESSAGE_BYTES - 1}) message[size++] = *parts[i]++;
  message[size] = 0;
  return sterna_fail(kind, message);
}}

static int32_t sterna_check_array(const void *args, int64_t i,
                                  const struct sterna_wanted *wanted) {{
  const sterna_any *any = (const sterna_any *)args + i;
  const sterna_tensor *tensor;
  int64_t step = 1;
  int32_t dim;
  if (any->type_index != 70 && any->type_index != 7)
    return sterna_wrong_argument(wanted, {_fault(words.NO_ARRAY)}, "");
  tensor = (const sterna_tensor *)sterna_any_tensor(args, i);
  if (tensor->ndim != wanted->ndim)
    return sterna_wrong_argument(wanted, {_fault(words.WRONG_NDIM)}, wanted->dimensions);
  if ((tensor->code | (uint32_t)tensor->bits << 8 | (uint32_t)tensor->lanes << 16) != wanted->type)
    return sterna_wrong_argument(wanted, {_fault(words.WRONG_DTYPE)}, wanted->type_text);
  for (dim = 0; dim < wanted->ndim; dim++)
    if (wanted->extents[dim] != -1 && wanted->extents[dim] != tensor->shape[dim])
      return sterna_wrong_argument(wanted, {_fault(words.WRONG_SHAPE)},
                                   wanted->extent_texts[dim]);
  if (tensor->device_type != wanted->device_type)
    return sterna_wrong_argument(wanted, {_fault(words.WRONG_DEVICE)}, wanted->device);
  if (wanted->is_written && any->type_index == 70 &&
      ((const uint32_t *)any->value.v_ptr)[3] == {words.READ_ONLY_MARK}u)
    return sterna_wrong_argument(wanted, {_fault(words.IS_READ_ONLY)}, "");
  if (!tensor->strides) return 0;
  for (dim = wanted->ndim; dim-- > 0; step *= tensor->shape[dim])
    if (tensor->shape[dim] != 1 && tensor->strides[dim] != step)
      return sterna_wrong_argument(wanted, {_fault(words.HAS_GAPS)}, "");
  return 0;
}}"""

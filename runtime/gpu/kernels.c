/* The kernels of a module, and the values that they are called with. */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const unsigned char *at;
  size_t left;
} reader;

static int read_number(reader *r, uint64_t *out) {
  if (r->left < 8) return -1;
  *out = 0;
  for (int i = 7; i >= 0; i--) *out = *out << 8 | r->at[i];
  r->at += 8;
  r->left -= 8;
  return 0;
}

/* A text with its length before it, copied to where there is room for it and a zero. */
static int read_text(reader *r, char **room, const char **out, size_t *size) {
  uint64_t length;
  if (read_number(r, &length) || length > r->left) return -1;
  memcpy(*room, r->at, (size_t)length);
  (*room)[length] = 0;
  *out = *room;
  *size = (size_t)length;
  *room += length + 1;
  r->at += length;
  r->left -= (size_t)length;
  return 0;
}

/* ---- extras of a kernel ---- */

/* The next number of a line, which must lie within bounds. */
static int read_whole(const char **at, int64_t least, int64_t most, int64_t *out) {
  size_t blanks = strspn(*at, " ");
  const char *digits = *at + blanks;
  int negative = *digits == '-';
  uint64_t value = 0;
  digits += negative;
  size_t length = strspn(digits, "0123456789");
  if (!blanks || !length || length > 15) return -1;
  for (size_t i = 0; i < length; i++) value = value * 10 + (uint64_t)(digits[i] - '0');
  *at = digits + length;
  *out = negative ? -(int64_t)value : (int64_t)value;
  return *out < least || *out > most ? -1 : 0;
}

static int read_wide(const char **at, int32_t count, uint64_t most, uint64_t *out) {
  int64_t value;
  for (int32_t i = 0; i < count; i++) {
    if (read_whole(at, 1, (int64_t)most, &value)) return -1;
    out[i] = (uint64_t)value;
  }
  return 0;
}

static int read_narrow(const char **at, int32_t count, int64_t least, int64_t most, void *out) {
  int64_t value;
  for (int32_t i = 0; i < count; i++) {
    if (read_whole(at, least, most, &value)) return -1;
    ((uint32_t *)out)[i] = (uint32_t)value;
  }
  return 0;
}

/* What stands behind the word of a line; the driver looks at what the numbers mean together. */
static int read_map(const char *at, gpu_map *m) {
  const int64_t far = 1 << 15;
  int least_rank = m->is_im2col ? 3 : 1;
  if (read_narrow(&at, 1, 0, 255, &m->type) || read_narrow(&at, 1, 0, 255, &m->swizzle) ||
      read_narrow(&at, 1, least_rank, GPU_MOST_RANK, &m->rank) ||
      read_wide(&at, m->rank, UINT64_C(1) << 32, m->dimensions) ||
      read_wide(&at, m->rank - 1, UINT64_C(1) << 40, m->strides))
    return -1;
  for (int32_t i = 0; i < m->rank; i++) m->steps[i] = 1;
  int failed = m->is_im2col
                   ? read_narrow(&at, m->rank - 2, -far, far, m->lower) ||
                         read_narrow(&at, m->rank - 2, -far, far, m->upper) ||
                         read_narrow(&at, 1, 1, 256, &m->channels) ||
                         read_narrow(&at, 1, 1, 1024, &m->pixels) ||
                         read_narrow(&at, m->rank, 1, 8, m->steps)
                   : read_narrow(&at, m->rank, 1, 256, m->box);
  return failed || (*at && *at != '\n') ? -1 : 0;
}

static int is_word(const char *line, const char *word) {
  size_t length = strlen(word);
  return strncmp(line, word, length) == 0 && (!line[length] || strchr(" \n", line[length]));
}

static int read_extras(gpu_kernel *k, const char *line) {
  int32_t wanted = 0;
  for (const char *p = k->parameters; *p; p++) wanted += *p == 'm';
  if (wanted > GPU_MOST_MAPS) return -1;
  if (wanted) k->maps = calloc((size_t)wanted, sizeof *k->maps);
  if (wanted && !k->maps) return -1;
  for (; *line; line += strcspn(line, "\n"), line += *line == '\n') {
    int is_im2col = is_word(line, "im2col");
    if (is_im2col || is_word(line, "tiled")) {
      if (k->map_count == wanted) return -1;
      gpu_map *m = &k->maps[k->map_count++];
      m->is_im2col = is_im2col;
      if (read_map(line + (is_im2col ? 6 : 5), m)) return -1;
    } else if (is_word(line, "pdl")) {
      k->may_begin_early = 1;
    } else {
      return -1;
    }
  }
  return k->map_count == wanted ? 0 : -1;
}

/* ---- modules ---- */

static int read_program(gpu_module *m, reader *r, const char *letters, char **room, gpu_program *program) {
  uint64_t count;
  size_t size, name_size;
  const char *extras;
  if (read_number(r, &count) || count > r->left / 24) return -1;
  gpu_kernel *longer = realloc(m->kernels, (m->kernel_count + (size_t)count + 1) * sizeof *longer);
  if (!longer) return -1;
  m->kernels = longer;
  for (; count; count--) {
    gpu_kernel *k = &m->kernels[m->kernel_count++];
    *k = (gpu_kernel){.program = program};
    if (read_text(r, room, &k->name, &name_size) || read_text(r, room, &k->parameters, &size)) return -1;
    if (size > GPU_MOST_PARAMETERS || strspn(k->parameters, letters) != size) return -1;
    if (read_text(r, room, &extras, &size) || strlen(extras) != size || read_extras(k, extras)) return -1;
  }
  return read_text(r, room, &program->source, &program->size);
}

static int read_module(gpu_module *m, reader r, const char *letters) {
  char *room = m->text;
  uint64_t count;
  if (read_number(&r, &count) || count > r.left / 16) return -1;
  m->programs = calloc((size_t)count + 1, sizeof *m->programs);
  if (!m->programs) return -1;
  for (; m->program_count < count; m->program_count++)
    if (read_program(m, &r, letters, &room, &m->programs[m->program_count])) return -1;
  return r.left ? -1 : 0;
}

gpu_module *gpu_module_read(sterna_bytes bytes, const char *letters) {
  gpu_module *m = calloc(1, sizeof *m);
  /* Each text has eight bytes of length before it, which is more than the zero behind it takes. */
  if (m) m->text = malloc(bytes.size + 1);
  reader r = {(const unsigned char *)bytes.data, bytes.size};
  if (m && m->text && read_module(m, r, letters) == 0) return m;
  if (m) gpu_module_free(m);
  sterna_set_error("ValueError", "these bytes hold no module of kernels");
  return NULL;
}

void gpu_module_free(gpu_module *m) {
  for (size_t i = 0; i < m->kernel_count; i++) free(m->kernels[i].maps);
  free(m->programs);
  free(m->kernels);
  free(m->text);
  free(m);
}

int gpu_module_load(const sterna_any *args, int32_t n, const char *letters, const sterna_module_type *type,
                    sterna_any *ret) {
  sterna_bytes bytes;
  sterna_module *module;
  if (n != 1) return sterna_set_error("TypeError", "a module of kernels is loaded from bytes");
  if (sterna_as_bytes(&args[0], &bytes)) return -1;
  gpu_module *m = gpu_module_read(bytes, letters);
  if (!m) return -1;
  if (sterna_module_create(type, m, &module)) {
    gpu_module_free(m);
    return -1;
  }
  *ret = sterna_any_object(module);
  return 0;
}

gpu_kernel *gpu_module_find(gpu_module *m, const char *name) {
  for (size_t i = 0; i < m->kernel_count; i++)
    if (strcmp(m->kernels[i].name, name) == 0) return &m->kernels[i];
  return NULL;
}

static int size_of(char kind) {
  return strchr("bB", kind) ? 1 : strchr("wW", kind) ? 2 : strchr("iuf", kind) ? 4 : 8;
}

static int read_value(char kind, const sterna_any *value, uint64_t *out) {
  double real;
  int64_t whole;
  float narrow;
  if (kind == 'p' || kind == 'm') {
    *out = (uint64_t)(uintptr_t)value->v_ptr;
    return value->type_index == STERNA_POINTER || value->type_index == STERNA_NONE
               ? 0
               : sterna_set_error("TypeError", "a kernel takes the address of memory of its device");
  }
  *out = 0;
  if (kind == 'f' || kind == 'd') {
    if (sterna_as_float(value, &real)) return -1;
    narrow = (float)real;
    memcpy(out, kind == 'f' ? (void *)&narrow : (void *)&real, (size_t)size_of(kind));
    return 0;
  }
  if (sterna_as_int(value, &whole)) return -1;
  *out = (uint64_t)whole;
  if (size_of(kind) < 8) {
    uint32_t four = (uint32_t)whole;
    uint16_t two = (uint16_t)whole;
    uint8_t one = (uint8_t)whole;
    const void *low = size_of(kind) == 4 ? (void *)&four : size_of(kind) == 2 ? (void *)&two : (void *)&one;
    *out = 0;
    memcpy(out, low, (size_t)size_of(kind));
  }
  return 0;
}

int gpu_launch_read(const gpu_kernel *kernel, const sterna_any *args, int32_t n, gpu_launch *out) {
  out->count = (int32_t)strlen(kernel->parameters);
  if (n != out->count + 7)
    return sterna_set_errorf("TypeError", "the kernel %s takes %d values and seven numbers of its launch, not %d",
                             kernel->name, (int)out->count, (int)n);
  for (int32_t i = 0; i < out->count; i++) {
    out->sizes[i] = (uint8_t)size_of(kernel->parameters[i]);
    if (read_value(kernel->parameters[i], &args[i], &out->values[i])) return -1;
  }
  size_t *numbers[7] = {&out->grid[0],  &out->grid[1],  &out->grid[2],      &out->block[0],
                        &out->block[1], &out->block[2], &out->shared_bytes};
  for (int32_t i = 0; i < 7; i++) {
    int64_t number;
    if (sterna_as_int(&args[out->count + i], &number)) return -1;
    *numbers[i] = number > 0 ? (size_t)number : 0;
  }
  return 0;
}

int gpu_launch_error(const gpu_kernel *kernel, const gpu_launch *launch, const char *said) {
  return sterna_set_errorf(
      "RuntimeError", "the kernel %s, launched with %llu x %llu x %llu blocks of %llu x %llu x %llu threads: %s",
      kernel->name, (unsigned long long)launch->grid[0], (unsigned long long)launch->grid[1],
      (unsigned long long)launch->grid[2], (unsigned long long)launch->block[0],
      (unsigned long long)launch->block[1], (unsigned long long)launch->block[2], said);
}

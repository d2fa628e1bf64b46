/*
 * A model's data: its graph and its parameters as one read-only piece, in a library or linked into the
 * program. Parameters are used where they lie, so opening a model costs the same whatever its size.
 */
#include "internal.h"

#include <string.h>

#define MODEL_MAGIC "sterna.m"
enum { MODEL_VERSION = 1, BYTE_ORDER_MARK = 0x01020304, VALUES_BOUNDARY = 64 };

/* The data begins so, with as many model_params behind it. Places count bytes from its beginning. */
struct model_data {
  char magic[8];
  uint32_t byte_order, version;
  uint64_t size;              /* of everything */
  uint64_t head_size;         /* up to the first parameter's values */
  uint64_t checksum;          /* Adler-32 of what lies between this and the values */
  uint64_t name, name_size;
  uint64_t graph, graph_size; /* its JSON */
  uint64_t param_count;
};

typedef struct {
  uint64_t name, name_size;
  uint64_t shape; /* of int64 */
  int32_t ndim;
  DLDataType dtype;
  uint64_t values, size;
} model_param;

static int refuse_model(const char *reason) {
  return sterna_set_errorf("ValueError", "the model's data is broken: %s", reason);
}

static uint32_t sum_up(const unsigned char *data, const unsigned char *end) {
  uint32_t a = 1, b = 0;
  for (; data < end; data++) {
    a = (a + *data) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

static int is_within(uint64_t from, uint64_t to, uint64_t at, uint64_t size) {
  return at >= from && at <= to && size <= to - at;
}

static const model_param *param_at(const model_data *d, uint64_t index) {
  return (const model_param *)(d + 1) + index;
}

static DLTensor param_tensor(const model_data *d, const model_param *p) {
  char *data = (char *)(uintptr_t)d; /* nobody writes there: the arrays over it are read-only */
  return (DLTensor){data + p->values, {kDLCPU, 0}, p->ndim, p->dtype, (int64_t *)(void *)(data + p->shape),
                    NULL, 0};
}

static int check_param(const model_data *d, const model_param *p) {
  size_t bytes;
  if (!is_within(sizeof *d, d->head_size, p->name, p->name_size) || p->ndim < 0 ||
      p->ndim > MOST_DIMENSIONS || p->shape % sizeof(int64_t) ||
      !is_within(sizeof *d, d->head_size, p->shape, (uint64_t)p->ndim * sizeof(int64_t)) ||
      p->values % VALUES_BOUNDARY || !is_within(d->head_size, d->size, p->values, p->size))
    return refuse_model("a parameter lies outside of it");
  DLTensor t = param_tensor(d, p);
  if (sterna_tensor_bytes(&t, &bytes)) return -1;
  return bytes == p->size ? 0 : refuse_model("a parameter's size does not fit its shape");
}

int model_check(const model_data *d) {
  if (memcmp(d->magic, MODEL_MAGIC, sizeof d->magic)) return refuse_model("it does not begin as models do");
  if (d->byte_order != BYTE_ORDER_MARK) return refuse_model("it is of another byte order");
  if (d->version != MODEL_VERSION)
    return sterna_set_errorf("ValueError", "the model is of version %u; this runtime knows version %d",
                             d->version, MODEL_VERSION);
  if (d->head_size < sizeof *d || d->head_size > d->size ||
      !is_within(sizeof *d, d->head_size, d->name, d->name_size) ||
      !is_within(sizeof *d, d->head_size, d->graph, d->graph_size) ||
      d->param_count > (d->head_size - sizeof *d) / sizeof(model_param))
    return refuse_model("its header points outside of it");
  const unsigned char *bytes = (const unsigned char *)d;
  if (d->checksum != sum_up((const unsigned char *)&d->name, bytes + d->head_size))
    return refuse_model("its checksum is wrong");
  for (uint64_t i = 0; i < d->param_count; i++)
    if (check_param(d, param_at(d, i))) return -1;
  return 0;
}

sterna_bytes model_name(const model_data *d) {
  return (sterna_bytes){(const char *)d + d->name, (size_t)d->name_size};
}

sterna_bytes model_graph(const model_data *d) {
  return (sterna_bytes){(const char *)d + d->graph, (size_t)d->graph_size};
}

int64_t model_param_count(const model_data *d) { return (int64_t)d->param_count; }

int model_get_param(const model_data *d, int64_t index, sterna_object *owner, sterna_bytes *name,
                    sterna_ndarray **out) {
  const model_param *p = param_at(d, (uint64_t)index);
  DLTensor t = param_tensor(d, p);
  *name = (sterna_bytes){(const char *)d + p->name, (size_t)p->name_size};
  return ndarray_over(&t, owner, 1, out);
}

static int give_params(sterna_model *m, const model_data *d, sterna_object *owner) {
  for (int64_t i = 0; i < model_param_count(d); i++) {
    sterna_bytes name;
    sterna_ndarray *array;
    if (model_get_param(d, i, owner, &name, &array)) return -1;
    uint32_t input = graph_find_input(m->g, name.data, name.size);
    int failed = input == NO_INPUT ? refuse_model("it has a parameter that is no input of its graph")
                                   : binding_give_parameter(m, input, array);
    sterna_release(array);
    if (failed) return -1;
  }
  return 0;
}

int model_open(const model_data *d, sterna_module *module, int with_params, const DLDevice *devices,
               int32_t device_count, sterna_model **out) {
  sterna_model *m;
  if (model_check(d)) return -1;
  sterna_bytes json = model_graph(d);
  if (sterna_model_create(json.data, json.size, module, devices, device_count, &m)) return -1;
  if (with_params && give_params(m, d, (sterna_object *)module)) {
    sterna_release(m);
    return -1;
  }
  *out = m;
  return 0;
}

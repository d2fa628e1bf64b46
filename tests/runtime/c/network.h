/* Functions that nodes of test graphs call, and graphs written as C text with ' for ". */
#ifndef STERNA_NETWORK_H_
#define STERNA_NETWORK_H_

#include "check.h"

static int64_t elements(const DLTensor *t) {
  int64_t count = 1;
  for (int32_t i = 0; i < t->ndim; i++) count *= t->shape[i];
  return count;
}

/* The arguments as float32 arrays of one size, or an error. */
static inline int read_floats(const sterna_any *args, int32_t n, int32_t expected, float **out,
                              int64_t *size) {
  const DLDataType float32 = {kDLFloat, 32, 1};
  if (n != expected) return sterna_set_errorf("TypeError", "expected %d arguments", (int)expected);
  for (int32_t i = 0; i < n; i++) {
    DLTensor *t;
    if (sterna_as_tensor(&args[i], &t)) return -1;
    if (memcmp(&t->dtype, &float32, sizeof float32) || (i && elements(t) != *size))
      return sterna_set_error("ValueError", "expected arrays of float32 of one size");
    *size = elements(t);
    out[i] = (float *)((char *)t->data + t->byte_offset);
  }
  return 0;
}

/* out = a + b */
static inline int node_add(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  float *a[3];
  int64_t size = 0;
  (void)self, (void)ret;
  if (read_floats(args, n, 3, a, &size)) return -1;
  for (int64_t i = 0; i < size; i++) a[2][i] = a[0][i] + a[1][i];
  return 0;
}

/* out = 2 a, written from the end, which shows when the two overlap */
static inline int node_double(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  float *a[2];
  int64_t size = 0;
  (void)self, (void)ret;
  if (read_floats(args, n, 2, a, &size)) return -1;
  for (int64_t i = 0; i < size; i++) a[1][i] = 0;
  for (int64_t i = size; i-- > 0;) a[1][i] = 2 * a[0][i];
  return 0;
}

/* out 0 = a + 1, out 1 = a - 1 */
static inline int node_split(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  float *a[3];
  int64_t size = 0;
  (void)self, (void)ret;
  if (read_floats(args, n, 3, a, &size)) return -1;
  for (int64_t i = 0; i < size; i++) {
    a[1][i] = a[0][i] + 1;
    a[2][i] = a[0][i] - 1;
  }
  return 0;
}

/* Checks that it sees one dimension. */
static inline int node_flat(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  for (int32_t i = 0; i < n; i++)
    if (((DLTensor *)args[i].v_ptr)->ndim != 1)
      return sterna_set_error("ValueError", "not flat");
  return node_double(self, args, n, ret);
}

static inline int node_fail(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self, (void)args, (void)n, (void)ret;
  return sterna_set_error("KeyError", "the weather");
}

/* Gives a value back, which nobody asked for. */
static inline int node_give(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  return node_double(self, args, n, ret) ||
         sterna_string("a result that is long enough", 28, ret);
}

static const sterna_table_entry network_functions[] = {
    {"add", node_add},   {"double", node_double}, {"split", node_split},
    {"flat", node_flat}, {"fail", node_fail},     {"give", node_give},
};

static inline sterna_module *network_module(void) {
  sterna_module *module = NULL;
  check(sterna_module_from_table(network_functions,
                                 sizeof network_functions / sizeof *network_functions,
                                 &module) == 0);
  return module;
}

/* Text with " for '; free() */
static inline char *json_of(const char *text) {
  size_t size = strlen(text) + 1;
  char *json = malloc(size);
  memcpy(json, text, size);
  for (char *c = json; *c; c++)
    if (*c == '\'') *c = '"';
  return json;
}

static const DLDevice network_cpu = {kDLCPU, 0};

static inline int make_network(const char *text, sterna_model **out) {
  sterna_module *module = network_module();
  char *json = json_of(text);
  int failed = sterna_model_create(json, strlen(json), module, &network_cpu, 1, out);
  free(json);
  sterna_release(module);
  return failed;
}

#define INPUT(name) "{'op':'null','name':'" name "','inputs':[]}"
#define NODE(name, function, inputs, in, out)                                              \
  "{'op':'tvm_op','name':'" name "','attrs':{'func_name':'" function "','num_inputs':'" in \
  "','num_outputs':'" out "','flatten_data':'0'},'inputs':" inputs "}"

/* y = 2 (x + w), z = y as one row; outputs y, z, x as a row, y again */
#define NETWORK                                                                                  \
  "{'nodes':[" INPUT("x") "," INPUT("w") ","                                                     \
  NODE("sum", "add", "[[0,0,0],[1,0,0]]", "2", "1") ","                                          \
  NODE("y", "double", "[[2,0,0]]", "1", "1") "," NODE("z", "__nop", "[[3,0,0]]", "1", "1") ","   \
  NODE("row", "__nop", "[[0,0,0]]", "1", "1") "],"                                               \
  "'arg_nodes':[0,1],'heads':[[3,0,0],[4,0,0],[5,0,0],[3,0,0]],'node_row_ptr':[0,1,2,3,4,5,6],"  \
  "'attrs':{'dltype':['list_str',['float32','float32','float32','float32','float32','float32']]" \
  ",'shape':['list_shape',[[2,3],[2,3],[2,3],[2,3],[6],[6]]],"                                   \
  "'storage_id':['list_int',[0,1,2,3,3,0]]"

/* One buffer per storage number, or one arena. */
#define NETWORK_CLASSIC NETWORK "}}"
#define NETWORK_PLANNED \
  NETWORK ",'storage_offset':['list_int',[-1,-1,0,64,64,-1]],'arena_bytes':['int',128]}}"

#endif

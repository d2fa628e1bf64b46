/* Graphs: those that run, and all sorts that are wrong and must be refused. */
#include "network.h"

static const float numbers[6] = {1, 2, 3, 4, 5, 6}, weights[6] = {.5f, .5f, .5f, .5f, .5f, -8};

static int is_twice_the_sum(const float *y) {
  for (int i = 0; i < 6; i++)
    if (y[i] != 2 * (numbers[i] + weights[i])) return 0;
  return 1;
}

static void run_network(const char *text) {
  sterna_model *m = NULL;
  float y[6], row[6];
  if (!check(make_network(text, &m) == 0)) return;
  check(sterna_model_num_inputs(m) == 2 && sterna_model_num_outputs(m) == 4);
  check(sterna_model_set_input(m, "x", numbers, sizeof numbers) == 0);
  check(sterna_model_set_input(m, "w", weights, sizeof weights) == 0);
  for (int turn = 0; turn < 3; turn++) {
    long before = check_allocations();
    check(sterna_model_run(m) == 0);
    check(check_allocations() == before); /* a run allocates nothing */
    for (int i = 0; i < 4; i++) {
      if (i == 2) continue;
      check(sterna_model_get_output(m, i, y, sizeof y) == 0 && is_twice_the_sum(y));
    }
    check(sterna_model_get_output(m, 2, row, sizeof row) == 0 && memcmp(row, numbers, sizeof row) == 0);
  }
  sterna_model_free(m);
}

static void runs(void) {
  run_network(NETWORK_CLASSIC);
  run_network(NETWORK_PLANNED);
  /* spaces, escapes, plain numbers, unknown members, links of two */
  run_network(
      " { \n'nodes' : [ " INPUT("\\u0078") " , " INPUT("w") ",{'op':'tvm_op','name':'sum \\\"\\u00e4\\ud83d\\ude00',"
      "'attrs':{'func_name':'add','num_inputs':2,'num_outputs':1,'flatten_data':0,'flops':'12'},"
      "'inputs':[[0,0],[1,0]]},"
      NODE("y", "double", "[[2,0,0]]", "1", "1") "," NODE("z", "__nop", "[[3,0,0]]", "1", "1") ","
      NODE("row", "__nop", "[[0,0,0]]", "1", "1") "],"
      "'more':{'a':[1.5e-3,true,false,null,{}]},"
      "'arg_nodes':[0,1],'heads':[[3,0],[4,0],[5,0],[3,0]],'node_row_ptr':[0,1,2,3,4,5,6],"
      "'attrs':{'dltype':['list_str',['float32','float32','float32','float32','float32','float32']],"
      "'shape':['list_shape',[[2,3],[2,3],[2,3],[2,3],[6],[6]]],"
      "'device_index':['list_int',[1,1,1,1,0,1]],'storage_id':['list_int',[0,1,2,3,3,0]]}}\t");
}

static void kinds_of_nodes(void) {
  sterna_model *m = NULL;
  float up[4], down[4], copy[4], values[4] = {1, 2, 3, 4};
  static const char text[] =
      "{'nodes':[" INPUT("x") "," NODE("both", "split", "[[0,0,0]]", "1", "2") ","
      NODE("copy", "__copy", "[[1,1,0]]", "1", "1") ","
      "{'op':'tvm_op','name':'flat','attrs':{'func_name':'flat','num_inputs':'1','num_outputs':'1',"
      "'flatten_data':'1'},'inputs':[[1,0,0]]}," NODE("give", "give", "[[2,0,0]]", "1", "1") "],"
      "'arg_nodes':[0],'heads':[[3,0,0],[4,0,0],[2,0,0]],'node_row_ptr':[0,1,3,4,5,6],"
      "'attrs':{'dltype':['list_str',['float32','float32','float32','float32','float32','float32']],"
      "'shape':['list_shape',[[2,2],[2,2],[2,2],[2,2],[2,2],[2,2]]],"
      "'storage_id':['list_int',[0,1,2,3,4,5]]}}";
  if (!check(make_network(text, &m) == 0)) return;
  check(sterna_model_set_input(m, "x", values, sizeof values) == 0 && sterna_model_run(m) == 0);
  check(sterna_model_get_output(m, 0, up, sizeof up) == 0 && up[0] == 4 && up[3] == 10);
  check(sterna_model_get_output(m, 1, down, sizeof down) == 0 && down[0] == 0 && down[3] == 6);
  check(sterna_model_get_output(m, 2, copy, sizeof copy) == 0 && copy[0] == 0 && copy[3] == 3);
  sterna_model_free(m);
}

/* Entries of less than a byte take whole bytes; entries without elements take none. */
static void odd_sizes(void) {
  sterna_model *m = NULL;
  sterna_tensor_info info;
  static const char text[] =
      "{'nodes':[" INPUT("a") "," INPUT("b") "," INPUT("c") "," INPUT("d") "],"
      "'arg_nodes':[3,2,1,0],'heads':[[0,0,0],[1,0,0]],'node_row_ptr':[0,1,2,3,4],"
      "'attrs':{'dltype':['list_str',['int4','bool','float32x4','uint8']],"
      "'shape':['list_shape',[[3],[],[2],[0,9223372036854775000,9223372036854775000]]],"
      "'storage_id':['list_int',[0,1,2,-1]]}}";
  if (!check(make_network(text, &m) == 0)) return;
  static const size_t sizes[] = {0, 32, 1, 2};
  static const char *const names[] = {"d", "c", "b", "a"};
  for (int i = 0; i < 4; i++) {
    check(sterna_model_input_info(m, i, &info) == 0 && info.bytes == sizes[i] && !info.is_parameter);
    check_text(info.name, names[i]);
  }
  check(sterna_model_output_info(m, 0, &info) == 0 && info.ndim == 1 && info.shape[0] == 3);
  check(info.dtype.bits == 4 && sterna_model_num_nodes(m) == 4);
  check_text(sterna_model_node_name(m, 2), "c");
  check(!sterna_model_node_name(m, 4) && !sterna_model_node_name(m, -1));
  check_fails(sterna_model_input_info(m, 4, &info), "IndexError", "no input 4");
  check_fails(sterna_model_output_info(m, -1, &info), "IndexError", "no output -1");
  unsigned char packed[2] = {0x21, 0x03}, back[2];
  check(sterna_model_set_input(m, "a", packed, 2) == 0 && sterna_model_run(m) == 0);
  check(sterna_model_get_output(m, 0, back, 2) == 0 && memcmp(packed, back, 2) == 0);
  sterna_model_free(m);
}

/* A graph of no nodes does nothing, and well. */
static void empty(void) {
  sterna_model *m = NULL;
  check(make_network("{'nodes':[],'arg_nodes':[],'heads':[],'node_row_ptr':[0],'attrs':{"
                     "'dltype':['list_str',[]],'shape':['list_shape',[]],'storage_id':['list_int',[]]}}",
                     &m) == 0);
  check(sterna_model_run(m) == 0 && sterna_model_num_outputs(m) == 0);
  sterna_model_free(m);
}

/* ---- what is wrong ---- */

static char *replace(const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  if (!check(at != NULL)) return json_of(text);
  char *made = malloc(strlen(text) + strlen(to) + 1);
  sprintf(made, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  return made;
}

static void refuse(const char *text, const char *reason) {
  sterna_model *m = NULL;
  if (!check_fails(make_network(text, &m), "ValueError", reason)) fprintf(stderr, "%s\n", text);
  check(m == NULL);
}

static void refuse_with(const char *from, const char *to, const char *reason) {
  char *text = replace(NETWORK_PLANNED, from, to);
  refuse(text, reason);
  free(text);
}

static void wrong_graphs(void) {
  refuse_with("'nodes'", "'knots'", "'nodes' is missing");
  refuse_with("'arg_nodes'", "'arg'", "'arg_nodes' is missing");
  refuse_with("'heads':[", "'heads':{},'x':[", "'heads' is missing or no list");
  refuse_with("'attrs':{'dltype'", "'atts':{'dltype'", "'attrs' is missing");
  refuse_with("'dltype'", "'type'", "'dltype' is missing");
  refuse_with("'shape'", "'form'", "'shape' is missing");
  refuse_with("'storage_id'", "'id'", "'storage_id' is missing");
  refuse_with("['list_int',[0,1,2,3,3,0]]", "[0,1,2,3,3,0]", "'storage_id' is missing or no list");
  refuse_with("[0,1,2,3,3,0]", "[0,1,2,3,3]", "'storage_id' has 5 items for 6 entries");
  refuse_with("[0,1,2,3,3,0]", "[0,1,2,6,3,0]", "'storage_id' is out of range");
  refuse_with("[0,1,2,3,3,0]", "[0,1,2,-2,3,0]", "'storage_id' is out of range");
  refuse_with("[0,1,2,3,3,0]", "[0,1,2,0.5,3,0]", "'storage_id' is out of range");
  refuse_with("[-1,-1,0,64,64,-1]", "[-1,-1,-1,64,64]", "'storage_offset' has 5 items");
  refuse_with("[-1,-1,0,64,64,-1]", "[-1,-1,0,128,64,-1]", "out of the arena");
  refuse_with("[-1,-1,0,64,64,-1]", "[-1,-1,0,105,64,-1]", "out of the arena");
  refuse_with("[-1,-1,0,64,64,-1]", "[-1,-1,0,9223372036854775000,64,-1]", "out of the arena");
  refuse_with("[-1,-1,0,64,64,-1]", "[-1,-1,2,64,64,-1]", "not aligned");
  refuse_with("[-1,-1,0,64,64,-1]", "[-1,-1,0,[],64,-1]", "no integer");
  refuse_with(",'arena_bytes':['int',128]", "", "no valid arena_bytes");
  refuse_with("['int',128]", "-1", "no valid arena_bytes");
  refuse_with("['int',128]", "['int']", "no valid arena_bytes");
  refuse_with("['float32'", "['floot'", "floot");
  refuse_with("['float32'", "[[]", "no name of a type");
  refuse_with("['float32'", "['float32xxxxxxxxxxxxxxxxxxxxxxxxxxx'", "no name of a type");
  refuse_with("[[2,3],[2,3]", "[[2,-3],[2,3]", "no size");
  refuse_with("[[2,3],[2,3]", "[[2,'3x'],[2,3]", "no size");
  refuse_with("[[2,3],[2,3]", "[7,[2,3]", "no shape");
  refuse_with("[[2,3],[2,3]", "[[4611686018427387904,4],[2,3]", "does not fit in 64 bits");
  refuse_with("[2,3],[6]", "[2,3],[7]", "of the same size");
  refuse_with("[0,1,2,3,4,5,6]", "[0,1,2,3,4,5]", "one more item");
  refuse_with("[0,1,2,3,4,5,6]", "[1,1,2,3,4,5,6]", "begin with 0");
  refuse_with("[0,1,2,3,4,5,6]", "[0,1,2,3,4,5,7]", "item 6 of 'node_row_ptr' is out of range");
  refuse_with("[0,1,2,3,4,5,6]", "[0,1,2,1,4,5,6]", "item 3 of 'node_row_ptr' is out of range");
  refuse_with("[0,1,2,3,4,5,6]", "[0,2,2,3,4,5,6]", "one output and no inputs");
  refuse_with("[0,1,2,3,4,5,6]", "[0,1,2,3,4,5,5]", "has 0 of what its 'num_outputs' counts");
  refuse_with("[0,1,2,3,4,5,6]", "[0,1,2,3,5,6,6]", "has 2 of what its 'num_outputs' counts");
  refuse_with("'arg_nodes':[0,1]", "'arg_nodes':[0,2]", "item 1 of 'arg_nodes' is no input");
  refuse_with("'arg_nodes':[0,1]", "'arg_nodes':[0,-1]", "item 1 of 'arg_nodes' is no input");
  refuse_with("'arg_nodes':[0,1]", "'arg_nodes':[0,66]", "item 1 of 'arg_nodes' is no input");
  refuse_with("'arg_nodes':[0,1]", "'arg_nodes':[0]", "('w') is an input that 'arg_nodes' leaves out");
  refuse_with("'arg_nodes':[0,1]", "'arg_nodes':[0,0]", "('x') is an input twice");
  refuse_with("'name':'w'", "'name':'x'", "('x') is an input twice");
  refuse_with("'name':'w'", "'name':7", "has no name");
  refuse_with("'name':'w'", "'name':'\\u0000'", "a zero in it");
  refuse_with("[[0,0,0],[1,0,0]]", "[[0,0,0],[2,0,0]]", "to node 2, which is not among the 2 before it");
  refuse_with("[[0,0,0],[1,0,0]]", "[[0,0,0],[1,1,0]]", "to output 1 of node 1, which has 1");
  refuse_with("[[0,0,0],[1,0,0]]", "[[0,0,0],[-1,0,0]]", "to node -1");
  refuse_with("[[0,0,0],[1,0,0]]", "[[0,0,0],[0]]", "no list of node and output");
  refuse_with("[[0,0,0],[1,0,0]]", "[[0,0,0],1]", "no list of node and output");
  refuse_with("[[0,0,0],[1,0,0]]", "[[0,0,0]]", "has 1 of what its 'num_inputs' counts");
  refuse_with("'num_inputs':'2'", "'inputs':'2'", "num_inputs");
  refuse_with("'func_name':'add'", "'name':'add'", "('sum') has no func_name");
  refuse_with("'op':'tvm_op'", "'op':'conv'", "neither a null nor a tvm_op");
  refuse_with("[3,0,0],[4,0,0],", "[3,0,0],[6,0,0],", "to node 6");
  refuse_with("{'op':'null'", "[],{'op':'null'", "");
  refuse_with("'arena_bytes'", "'device_index':['list_int',[1,1,1,2,1,1]],'arena_bytes'",
              "needs a device of type cuda");
  refuse_with("'arena_bytes'", "'device_index':['list_int',[1,1,1,-2,1,1]],'arena_bytes'",
              "no device type");
}

static void missing_functions(void) {
  char *text = replace(NETWORK_CLASSIC, "'add'", "'ad'"), *worse = replace(text, "'double'", "'trouble'");
  refuse(worse, "the library lacks functions that the graph calls: 'ad', 'trouble'");
  free(worse);
  free(text);
}

static void no_json(void) {
  static const struct {
    const char *text, *reason;
  } cases[] = {{"", "line 1, column 1"},     {"[]", "line 1, column 1"},
               {"{", "where it ends"},       {"{}x", "column 3"},
               {"{'a':1,}", "column 8"},     {"{'a' 1}", "column 6"},
               {"{'a':01}", "column 7"},     {"{'a':1.}", "column 8"},
               {"{'a':1e}", "column 8"},     {"{'a':-}", "column 7"},
               {"{'a':+1}", "column 6"},     {"{'a':nul}", "column 6"},
               {"{'a':'\\x'}", "column 8"},  {"{'a':'\\u12g4'}", "column 11"},
               {"{'a':'\n'}", "column 7"},   {"{'a\n", "line 1, column 4"},
               {"{\n\n 'a':[1 2]}", "line 3, column 9"},
               {"{'a':[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "column 37"},
               {"{'a':'\xff", "where it ends"}, {"\xff", "column 1"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refuse(cases[i].text, cases[i].reason);
  for (size_t size = 0; size < strlen(NETWORK_CLASSIC); size++) {
    char *text = json_of(NETWORK_CLASSIC);
    text[size] = 0;
    refuse(text, "is no JSON object");
    free(text);
  }
}

/* Whatever a graph says, it is refused or it runs within its memory. */
static void noise(void) {
  static const char *const texts[] = {NETWORK_CLASSIC, NETWORK_PLANNED};
  static const char pieces[] = "0123456789-.,:[]{}\"' eE\\u\nxywnopadd__";
  int made = 0;
  for (int round = 0; round < 20000; round++) {
    char *json = json_of(texts[round % 2]);
    size_t size = strlen(json);
    for (int changes = 1 + (int)(check_random() % 3); changes > 0; changes--) {
      size_t at = check_random() % size;
      switch (check_random() % 3) {
        case 0: json[at] = pieces[check_random() % (sizeof pieces - 1)]; break;
        case 1: memmove(json + at, json + at + 1, size - at), size--; break;
        default: json[at] = json[check_random() % size];
      }
    }
    sterna_model *m = NULL;
    sterna_module *module = network_module();
    if (sterna_model_create(json, size, module, &network_cpu, 1, &m) == 0) {
      made++;
      sterna_model_run(m); /* may fail, by what the functions check */
      sterna_model_free(m);
    }
    sterna_release(module);
    free(json);
  }
  check(made > 200);
}

static void errors_name_the_node(void) {
  sterna_model *m = NULL;
  char *text = replace(NETWORK_CLASSIC, "'double'", "'fail'");
  check(make_network(text, &m) == 0);
  check_fails(sterna_model_run(m), "KeyError", "node 'y': the weather");
  sterna_error *error = sterna_take_error();
  check(error->cause != NULL);
  check_text(((sterna_error *)error->cause)->message.data, "the weather");
  sterna_release(error);
  free(text);
  sterna_model_free(m);
  text = replace(NETWORK_CLASSIC, "'add'", "'flat'");
  check(make_network(text, &m) == 0);
  check_fails(sterna_model_run(m), "ValueError", "node 'sum': not flat");
  sterna_model_free(m);
  free(text);
}

static void devices(void) {
  sterna_model *m = NULL;
  sterna_module *module = network_module();
  char *json = json_of(NETWORK_CLASSIC);
  DLDevice nowhere = {kDLWebGPU, 3};
  check_fails(sterna_model_create(json, strlen(json), module, NULL, 0, &m), "ValueError", "give one");
  check_fails(sterna_model_create(json, strlen(json), module, &nowhere, 1, &m), "RuntimeError", "webgpu(3)");
  free(json);
  sterna_release(module);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"runs", runs},
      {"kinds_of_nodes", kinds_of_nodes},
      {"odd_sizes", odd_sizes},
      {"empty", empty},
      {"wrong_graphs", wrong_graphs},
      {"missing_functions", missing_functions},
      {"no_json", no_json},
      {"noise", noise},
      {"errors_name_the_node", errors_name_the_node},
      {"devices", devices},
  };
  return CASES(cases);
}

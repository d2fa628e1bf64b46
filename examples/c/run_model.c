/*
 * Runs a model on numbers from standard input and writes what it gives to standard output.
 *
 *     native=$(python -c "import sterna.support.native as n; print(n.include_folder().parent)")
 *     cc run_model.c -I$native/include -L$native/lib -lsterna -Wl,-rpath,$native/lib -o run_model
 *     ./run_model ./model.so < input.bin > output.bin
 *
 * or, with the model in the program itself:
 *
 *     cc run_model.c model.o -I$native/include $native/lib/libsterna.a -lpthread -ldl -lm -o linked
 *     ./linked < input.bin > output.bin
 */
#include <stdio.h>
#include <stdlib.h>

#include "sterna.h"

#define CHECK(call) ((call) ? (fprintf(stderr, "%s\n", sterna_last_error()), exit(1)) : (void)0)

int main(int argc, char **argv) {
  sterna_model *model;
  sterna_tensor_info in, out;
  CHECK(sterna_model_load(argc > 1 ? argv[1] : NULL, &model)); /* NULL: the one that is linked */
  CHECK(sterna_model_input_info(model, 0, &in));
  CHECK(sterna_model_output_info(model, 0, &out));
  void *input = malloc(in.bytes), *output = malloc(out.bytes);
  if (!input || !output || fread(input, 1, in.bytes, stdin) != in.bytes) return 2;
  CHECK(sterna_model_set_input(model, in.name, input, in.bytes));
  CHECK(sterna_model_run(model));
  CHECK(sterna_model_get_output(model, 0, output, out.bytes));
  fwrite(output, 1, out.bytes, stdout);
  sterna_model_free(model);
  free(input);
  free(output);
  return 0;
}

/* A library that holds a model: y = 2 (x + w). Its data is written when it is loaded. */
#include "../model_data.h"
#include "../network.h"

__attribute__((aligned(64), visibility("default"))) unsigned char __sterna__model_net[MODEL_SIZE];
STERNA_EXPORT const char __sterna__model[];
const char __sterna__model[] = "net";
STERNA_EXPORT const sterna_host *__sterna__host;
const sterna_host *__sterna__host;

int check_that(int held, const char *file, int line, const char *what) {
  (void)file, (void)line, (void)what;
  return held;
}

STERNA_FUNCTION(add) { return node_add(self, args, n, ret); }

STERNA_FUNCTION(double) { return node_double(self, args, n, ret); }

__attribute__((constructor)) static void write_it(void) {
  static const float weights[6] = {1, 2, 3, 4, 5, 6};
  char *graph = json_of(NETWORK_PLANNED);
  write_model(__sterna__model_net, "net", graph, weights);
  free(graph);
}

/* The network of this project: its tensors, and the call that runs it. model.c is made for it. */
#ifndef MODEL_H_
#define MODEL_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An input or output. Its elements lie one behind the other at data. */
struct model_tensor {
  const char *name;
  const char *type;
  char kind; /* i, u or f: signed, unsigned, floating point; b: anything else, shown as its bits */
  uint8_t element_bytes;
  uint32_t count;
  void *data;
};

extern const struct model_tensor model_inputs[];
extern const struct model_tensor model_outputs[];
extern const uint32_t model_input_count;
extern const uint32_t model_output_count;

/* Reads the inputs and writes the outputs. Returns 0, or another number if it failed. */
int32_t model_run(void);

#ifdef __cplusplus
}
#endif

#endif /* MODEL_H_ */

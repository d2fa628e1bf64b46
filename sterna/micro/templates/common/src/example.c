/* Runs the network once on its sample inputs and prints what it gives.

   Every element of an output is a line: its bits, and the number where that is short to say. */

#include "model.h"
#include "platform.h"
#include "project.h"

#define DIGITS 7

static void print_hex(uint64_t bits, uint32_t bytes) {
  char text[19] = "0x";
  uint32_t at = 2;
  for (uint32_t left = bytes * 2; left > 0; left--) {
    uint32_t digit = (uint32_t)(bits >> ((left - 1) * 4)) & 15;
    text[at++] = (char)(digit < 10 ? '0' + digit : 'a' + digit - 10);
  }
  text[at] = 0;
  platform_print(text);
}

static void print_unsigned(uint64_t value) {
  char text[21];
  uint32_t at = sizeof text - 1;
  text[at] = 0;
  do {
    text[--at] = (char)('0' + value % 10);
    value /= 10;
  } while (value != 0);
  platform_print(text + at);
}

static void print_signed(int64_t value) {
  if (value < 0) platform_print("-");
  print_unsigned(value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* Seven digits, of which the last may be off by a few: the bits beside it are exact. */
static void print_float(uint32_t bits) {
  union { uint32_t bits; float value; } number = {bits & 0x7fffffff};
  int32_t exponent = 0;
  if (bits >> 31) platform_print("-");
  if (number.bits >= 0x7f800000) {
    platform_print(number.bits == 0x7f800000 ? "inf" : "nan");
    return;
  }
  if (number.bits != 0) {
    while (number.value >= 10.0f) number.value /= 10.0f, exponent++;
    while (number.value < 1.0f) number.value *= 10.0f, exponent--;
  }
  uint32_t scaled = (uint32_t)(number.value * 1e6f + 0.5f);
  char text[] = "0.000000";
  for (uint32_t at = DIGITS; at > 0; at--) {
    text[at == 1 ? 0 : at] = (char)('0' + scaled % 10);
    scaled /= 10;
  }
  platform_print(text);
  platform_print("e");
  print_signed(exponent);
}

static uint64_t read_bits(const struct model_tensor *tensor, uint32_t place) {
  const uint8_t *data = (const uint8_t *)tensor->data + place * tensor->element_bytes;
  uint64_t bits = 0;
  for (uint32_t byte = 0; byte < tensor->element_bytes; byte++) {
    bits |= (uint64_t)data[byte] << (byte * 8);
  }
  return bits;
}

static int64_t extend_sign(uint64_t bits, uint32_t bytes) {
  uint64_t sign = (uint64_t)1 << (bytes * 8 - 1);
  return (int64_t)((bits ^ sign) - sign);
}

static void print_element(const struct model_tensor *tensor, uint32_t place) {
  uint64_t bits = read_bits(tensor, place);
  print_hex(bits, tensor->element_bytes);
  platform_print(" ");
  if (tensor->kind == 'i') {
    print_signed(extend_sign(bits, tensor->element_bytes));
  } else if (tensor->kind == 'u') {
    print_unsigned(bits);
  } else if (tensor->kind == 'f' && tensor->element_bytes == 4) {
    print_float((uint32_t)bits);
  }
  platform_print("\n");
}

int32_t project_run(void) {
  int32_t status = model_run();
  if (status != 0) {
    platform_print("the network failed: ");
    print_signed(status);
    platform_print("\n");
    return status;
  }
  for (uint32_t place = 0; place < model_output_count; place++) {
    const struct model_tensor *output = &model_outputs[place];
    platform_print("output ");
    print_unsigned(place);
    platform_print(" ");
    platform_print(output->type);
    platform_print(" ");
    platform_print(output->name);
    platform_print("\n");
    for (uint32_t element = 0; element < output->count; element++) print_element(output, element);
  }
  platform_print("stack ");
  print_unsigned(platform_stack_bytes());
  platform_print("\ndone\n");
  return 0;
}

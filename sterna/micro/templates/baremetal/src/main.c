/* A bare Cortex-M as a platform: text by semihosting, the byte stream by its UART. */

#include <stdint.h>

#include "platform.h"
#include "project.h"
#include "semihosting.h"
#include "startup.h"
#include "uart.h"

void platform_print(const char *text) { semihosting_print(text); }

void platform_write(const void *bytes, uint32_t size) {
  const uint8_t *next = bytes;
  while (size-- > 0) uart_write(*next++);
}

int32_t platform_read(void) { return uart_read(); }

uint64_t platform_nanoseconds(void) { return semihosting_nanoseconds(); }

uint32_t platform_stack_bytes(void) { return stack_bytes(); }

int main(void) {
  uart_start();
  return (int)project_run();
}

/* Zephyr as a platform: the console is for text, and its UART is the byte stream. */

#include <stdint.h>

#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "platform.h"
#include "project.h"

static const struct device *const line = DEVICE_DT_GET(DT_CHOSEN(zephyr_console));

void platform_print(const char *text) { printk("%s", text); }

void platform_write(const void *bytes, uint32_t size) {
  const unsigned char *next = bytes;
  while (size-- > 0) uart_poll_out(line, *next++);
}

int32_t platform_read(void) {
  unsigned char byte;
  while (uart_poll_in(line, &byte) != 0) {
  }
  return byte;
}

uint64_t platform_nanoseconds(void) { return k_ticks_to_ns_floor64((uint64_t)k_uptime_ticks()); }

uint32_t platform_stack_bytes(void) {
  size_t unused = 0;
  if (k_thread_stack_space_get(k_current_get(), &unused) != 0) return 0;
  return (uint32_t)(CONFIG_MAIN_STACK_SIZE - unused);
}

int main(void) { return (int)project_run(); }

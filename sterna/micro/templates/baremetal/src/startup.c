/* From reset to main on a Cortex-M: vectors, floating point, memory, stack. */

#include "startup.h"

#include <stdint.h>

#include "semihosting.h"

#define PAINT 0x5ac3a55au

extern uint32_t link_data_source[], link_data_start[], link_data_end[];
extern uint32_t link_bss_start[], link_bss_end[];
extern uint32_t link_stack_bottom[], link_stack_top[];

int main(void);
void reset(void);

static void fail(const char *reason) {
  semihosting_print(reason);
  semihosting_exit(STATUS_FAULT);
}

static void nmi(void) { fail("non-maskable interrupt\n"); }
static void hard_fault(void) { fail("hard fault: an address or instruction is not right\n"); }
static void memory_fault(void) { fail("memory management fault\n"); }
static void bus_fault(void) { fail("bus fault\n"); }
static void usage_fault(void) { fail("usage fault\n"); }
static void unexpected(void) { fail("an interrupt that nothing handles\n"); }

union vector {
  void (*handler)(void);
  void *address;
};

__attribute__((section(".vectors"), used)) static const union vector vectors[16] = {
  {.address = link_stack_top}, {reset}, {nmi}, {hard_fault}, {memory_fault}, {bus_fault},
  {usage_fault}, {unexpected}, {0}, {0}, {0}, {unexpected}, {unexpected}, {0}, {unexpected},
  {unexpected},
};

/* The stack takes all memory that is left; what keeps its paint was never in use. */
static void paint_stack(void) {
  uint32_t *here = __builtin_frame_address(0);
  for (volatile uint32_t *word = link_stack_bottom; word < here - 16; word++) *word = PAINT;
}

uint32_t stack_bytes(void) {
  const uint32_t *word = link_stack_bottom;
  while (word < link_stack_top && *word == PAINT) word++;
  return (uint32_t)((const uint8_t *)link_stack_top - (const uint8_t *)word);
}

__attribute__((used, noinline)) static void start(void) {
  const uint32_t *source = link_data_source;
  for (uint32_t *word = link_data_start; word < link_data_end; word++) *word = *source++;
  for (uint32_t *word = link_bss_start; word < link_bss_end; word++) *word = 0;
  paint_stack();
  int status = main();
  if (link_stack_bottom[0] != PAINT) fail("the stack was too small\n");
  semihosting_exit(status);
}

/* No compiled code runs before the floating-point unit is on: it may save that unit's registers. */
__attribute__((naked)) void reset(void) {
  __asm__ volatile(
    ".syntax unified\n"
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    "ldr r0, =0xe000ed88\n"
    "ldr r1, [r0]\n"
    "ldr r2, =0x00f00000\n"
    "orrs r1, r1, r2\n"
    "str r1, [r0]\n"
    "dsb\n"
    "isb\n"
#endif
    "bl %c0\n"
    "b .\n"
    ".ltorg\n"
    : : "i"(start));
}

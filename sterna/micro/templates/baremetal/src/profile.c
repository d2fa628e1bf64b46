/* What each kernel takes, in ticks of SysTick: for programs with -DSTERNA_PROFILE. */

#if defined(STERNA_PROFILE)

#include <stdint.h>

#include "platform.h"
#include "profile.h"

#define SYST_CSR (*(volatile uint32_t *)0xe000e010u)
#define SYST_RVR (*(volatile uint32_t *)0xe000e014u)
#define SYST_CVR (*(volatile uint32_t *)0xe000e018u)
#define LARGEST 0xffffffu

static int32_t running = -1;
static uint32_t began;

static void print_number(uint32_t value) {
  char text[11];
  uint32_t at = sizeof text - 1;
  text[at] = 0;
  do {
    text[--at] = (char)('0' + value % 10);
    value /= 10;
  } while (value != 0);
  platform_print(text + at);
}

/* It prints at once what the kernel before took; -1: there is none after it. */
void sterna_kernel_begins(int32_t number) {
  uint32_t ticks = (began - SYST_CVR) & LARGEST;
  if (running >= 0) {
    platform_print("kernel ");
    print_number((uint32_t)running);
    platform_print(" ");
    print_number(ticks);
    platform_print("\n");
  }
  running = number;
  SYST_RVR = LARGEST;
  SYST_CVR = 0;
  SYST_CSR = 5;
  began = SYST_CVR;
}

#endif

/*
 * Preloaded into a process, makes its libraries see an x86-64 processor without AVX-512, AMX and what
 * builds on them. Linux lets the CPUID instruction fault; the handler answers with fewer features.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012, FEATURES = 7, STATES = 0xd };

/* AVX-512: f, dq, ifma, pf, er, cd, bw, vl. */
static const unsigned LEFT_OUT_EBX = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 |
                                     1u << 30 | 1u << 31;
/* AVX-512: vbmi, vbmi2, vnni, bitalg, vpopcntdq. */
static const unsigned LEFT_OUT_ECX = 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14;
/* AVX-512: 4vnniw, 4fmaps, vp2intersect, fp16; AMX: bf16, tile, int8. */
static const unsigned LEFT_OUT_EDX = 1u << 2 | 1u << 3 | 1u << 8 | 1u << 23 | 1u << 22 | 1u << 24 |
                                     1u << 25;
/* Of the second part: AVX-VNNI, AVX-512 bf16, AMX fp16, AVX-IFMA. */
static const unsigned LEFT_OUT_LATER = 1u << 4 | 1u << 5 | 1u << 21 | 1u << 23;

static void answer(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *at = (const unsigned char *)registers[REG_RIP];
  (void)number, (void)info;
  if (at[0] != 0x0f || at[1] != 0xa2) { /* not CPUID: a fault of the process's own */
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX], a, b, c, d;
  syscall(SYS_arch_prctl, SET_CPUID, 1);
  __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(part));
  syscall(SYS_arch_prctl, SET_CPUID, 0);
  if (leaf == FEATURES && part == 0) b &= ~LEFT_OUT_EBX, c &= ~LEFT_OUT_ECX, d &= ~LEFT_OUT_EDX;
  if (leaf == FEATURES && part == 1) a &= ~LEFT_OUT_LATER, d = 0;
  if (leaf == STATES && part == 0) a &= 7; /* x87, SSE, AVX */
  registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
  if (syscall(SYS_arch_prctl, SET_CPUID, 0) == 0) return;
  perror("CPUID cannot be made to fault");
  exit(1);
}

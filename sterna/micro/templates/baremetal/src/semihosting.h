/* Output, the time and the end of the program through a debugger or emulator. */
#ifndef SEMIHOSTING_H_
#define SEMIHOSTING_H_

#include <stdint.h>

void semihosting_print(const char *text);
/* Since the program started; 0 where nobody counts. */
uint64_t semihosting_nanoseconds(void);
__attribute__((noreturn)) void semihosting_exit(int status);

#endif /* SEMIHOSTING_H_ */

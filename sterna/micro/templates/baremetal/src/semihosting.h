/* Output and the end of the program through a debugger or emulator. */
#ifndef SEMIHOSTING_H_
#define SEMIHOSTING_H_

void semihosting_print(const char *text);
__attribute__((noreturn)) void semihosting_exit(int status);

#endif /* SEMIHOSTING_H_ */

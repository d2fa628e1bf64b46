/* What start-up code knows. */
#ifndef STARTUP_H_
#define STARTUP_H_

#include <stdint.h>

/* The exit status of a program that a fault ended. */
#define STATUS_FAULT 70

/* The most stack that was ever in use, in bytes. */
uint32_t stack_bytes(void);

#endif /* STARTUP_H_ */

/* What the rest of a project needs from its platform. A new board or system writes these. */
#ifndef PLATFORM_H_
#define PLATFORM_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Shows a text to people, such as what example.c says. */
void platform_print(const char *text);

/* The byte stream to the host, as host_driven.c talks on it. */
void platform_write(const void *bytes, uint32_t size);
/* Waits for the next byte; -1 when the host has gone, where that can be told. */
int32_t platform_read(void);

/* A clock that only goes forward; 0 always, if there is none. */
uint64_t platform_nanoseconds(void);

/* The most stack that was ever in use, in bytes; 0 if that is not known. */
uint32_t platform_stack_bytes(void);

#ifdef __cplusplus
}
#endif

#endif /* PLATFORM_H_ */

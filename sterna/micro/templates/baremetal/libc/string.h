/* What networks and compilers call of <string.h>, where there is no C library. */
#ifndef STRING_H_
#define STRING_H_

#include <stddef.h>

void *memcpy(void *restrict target, const void *restrict source, size_t size);
void *memmove(void *target, const void *source, size_t size);
void *memset(void *target, int value, size_t size);
int memcmp(const void *left, const void *right, size_t size);

#endif /* STRING_H_ */

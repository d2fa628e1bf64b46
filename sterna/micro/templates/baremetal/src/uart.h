/* The serial line of the board. A kind of UART is one file, uart_<kind>.c. */
#ifndef UART_H_
#define UART_H_

#include <stdint.h>

void uart_start(void);
/* Waits until there is room for the byte. */
void uart_write(uint8_t byte);
/* Waits for a byte. */
uint8_t uart_read(void);

#endif /* UART_H_ */

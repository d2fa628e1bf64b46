/* The UART of Arm's Cortex-M System Design Kit, which the MPS2 and MPS3 boards have. */

#include "board.h"
#include "uart.h"

struct uart {
  volatile uint32_t data, state, control, interrupts, divisor;
};

#define UART ((struct uart *)BOARD_UART_ADDRESS)
#define TRANSMIT_FULL 1u
#define RECEIVE_FULL 2u
#define ENABLE_BOTH 3u
#define SMALLEST_DIVISOR 16u

void uart_start(void) {
  uint32_t divisor = BOARD_UART_CLOCK / BOARD_UART_BAUD;
  UART->divisor = divisor < SMALLEST_DIVISOR ? SMALLEST_DIVISOR : divisor;
  UART->control = ENABLE_BOTH;
}

void uart_write(uint8_t byte) {
  while (UART->state & TRANSMIT_FULL) {
  }
  UART->data = byte;
}

uint8_t uart_read(void) {
  while (!(UART->state & RECEIVE_FULL)) {
  }
  return (uint8_t)UART->data;
}

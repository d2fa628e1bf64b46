/* The UART of Nordic's nRF51, as it is wired on the micro:bit. */

#include "board.h"
#include "uart.h"

#define REGISTER(offset) (*(volatile uint32_t *)(BOARD_UART_ADDRESS + (offset)))
#define START_RECEIVING REGISTER(0x000)
#define START_SENDING REGISTER(0x008)
#define RECEIVED REGISTER(0x108)
#define SENT REGISTER(0x11c)
#define ENABLE REGISTER(0x500)
#define PIN_SENDING REGISTER(0x50c)
#define PIN_RECEIVING REGISTER(0x514)
#define INCOMING REGISTER(0x518)
#define OUTGOING REGISTER(0x51c)
#define BAUD REGISTER(0x524)

#define ENABLED 4u
#define BAUD_115200 0x01d7e000u

void uart_start(void) {
  PIN_SENDING = 24;
  PIN_RECEIVING = 25;
  BAUD = BAUD_115200;
  ENABLE = ENABLED;
  START_RECEIVING = 1;
  START_SENDING = 1;
}

void uart_write(uint8_t byte) {
  SENT = 0;
  OUTGOING = byte;
  while (!SENT) {
  }
}

uint8_t uart_read(void) {
  while (!RECEIVED) {
  }
  RECEIVED = 0;
  return (uint8_t)INCOMING;
}

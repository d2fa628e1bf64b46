/* Obeys the host on the byte stream: takes inputs, runs the network, gives outputs.

   A message, in both directions, with numbers in little-endian order:

       0xa5, command (1 byte), place (2 bytes), size (4 bytes), size bytes, CRC-32 (4 bytes)

   The CRC is that of everything between it and 0xa5. A reply repeats the command, or says why not.

       command  place    bytes of the request     bytes of the reply
       'h'      0        none                     version, inputs, outputs (1 byte each)
       'w'      input    the input's elements     none
       'r'      0        none                     what the network returned (4 bytes)
       'g'      output   none                     the output's elements
       't'      0        how often (4 bytes)      what the network returned last (4 bytes), and the
                                                  nanoseconds of all runs (8 bytes; 0: no clock)
       'q'      0        none                     none; the program ends
       'x'                                        only in replies: why not, as one byte */

#include "model.h"
#include "platform.h"
#include "project.h"

#define START 0xa5
#define VERSION 2

enum { BAD_CRC = 1, BAD_COMMAND, BAD_PLACE, BAD_SIZE };

struct message {
  uint8_t command;
  uint16_t place;
  uint32_t size;
};

static uint32_t crc_of(uint32_t crc, const uint8_t *bytes, uint32_t size) {
  while (size-- > 0) {
    crc ^= *bytes++;
    for (uint32_t bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1)));
  }
  return crc;
}

static void put(uint8_t *bytes, uint32_t value, uint32_t size) {
  for (uint32_t at = 0; at < size; at++) bytes[at] = (uint8_t)(value >> (at * 8));
}

static uint32_t get(const uint8_t *bytes, uint32_t size) {
  uint32_t value = 0;
  for (uint32_t at = 0; at < size; at++) value |= (uint32_t)bytes[at] << (at * 8);
  return value;
}

static void send(uint8_t command, uint16_t place, const void *bytes, uint32_t size) {
  uint8_t head[8] = {START, command}, tail[4];
  put(head + 2, place, 2);
  put(head + 4, size, 4);
  uint32_t crc = crc_of(0xffffffffu, head + 1, sizeof head - 1);
  put(tail, ~crc_of(crc, bytes, size), 4);
  platform_write(head, sizeof head);
  platform_write(bytes, size);
  platform_write(tail, sizeof tail);
}

static void refuse(uint8_t reason) { send('x', 0, &reason, 1); }

/* Reads bytes; returns 0 when the host has gone. */
static int32_t receive(uint8_t *bytes, uint32_t size, uint32_t *crc) {
  for (uint32_t at = 0; at < size; at++) {
    const int32_t byte = platform_read();
    if (byte < 0) return 0;
    bytes[at] = (uint8_t)byte;
  }
  *crc = crc_of(*crc, bytes, size);
  return 1;
}

static uint32_t bytes_of(const struct model_tensor *tensor) {
  return tensor->count * tensor->element_bytes;
}

static void run_timed(uint32_t runs) {
  uint8_t result[12];
  int32_t status = 0;
  const uint64_t start = platform_nanoseconds();
  while (runs-- > 0 && status == 0) status = model_run();
  const uint64_t took = platform_nanoseconds() - start;
  put(result, (uint32_t)status, 4);
  put(result + 4, (uint32_t)took, 4);
  put(result + 8, (uint32_t)(took >> 32), 4);
  send('t', 0, result, sizeof result);
}

static void obey(const struct message *given, const uint8_t *number) {
  const uint8_t hello[3] = {VERSION, (uint8_t)model_input_count, (uint8_t)model_output_count};
  uint8_t status[4];
  switch (given->command) {
    case 'h':
      send('h', 0, hello, sizeof hello);
      break;
    case 'w':
      send('w', given->place, 0, 0);
      break;
    case 'r':
      put(status, (uint32_t)model_run(), 4);
      send('r', 0, status, sizeof status);
      break;
    case 'g':
      if (given->place >= model_output_count) {
        refuse(BAD_PLACE);
      } else {
        const struct model_tensor *output = &model_outputs[given->place];
        send('g', given->place, output->data, bytes_of(output));
      }
      break;
    case 't':
      run_timed(get(number, 4));
      break;
    case 'q':
      send('q', 0, 0, 0);
      break;
    default:
      refuse(BAD_COMMAND);
  }
}

/* Why a request cannot be followed, from its head alone; 0 if it can. */
static uint8_t check(const struct message *given) {
  if (given->command != 'w') return given->size == (given->command == 't' ? 4 : 0) ? 0 : BAD_SIZE;
  if (given->place >= model_input_count) return BAD_PLACE;
  return given->size == bytes_of(&model_inputs[given->place]) ? 0 : BAD_SIZE;
}

int32_t project_run(void) {
  for (;;) {
    int32_t byte;
    while ((byte = platform_read()) != START) {
      if (byte < 0) return 0;
    }
    uint8_t head[7], number[4], tail[4];
    uint32_t crc = 0xffffffffu, ignored = 0;
    if (!receive(head, sizeof head, &crc)) return 0;
    const struct message given = {head[0], (uint16_t)get(head + 1, 2), get(head + 3, 4)};
    const uint8_t wrong = check(&given);
    if (wrong != 0) {
      refuse(wrong); /* Its size means nothing: the next message is looked for from here on. */
      continue;
    }
    uint8_t *target = given.command == 'w' ? model_inputs[given.place].data : number;
    if (!receive(target, given.size, &crc)) return 0;
    if (!receive(tail, sizeof tail, &ignored)) return 0;
    if (get(tail, 4) != (uint32_t)~crc) {
      refuse(BAD_CRC);
      continue;
    }
    obey(&given, number);
    if (given.command == 'q') return 0;
  }
}

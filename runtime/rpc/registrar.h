/* The process that keeps a tracker informed. */
#ifndef STERNA_RPC_REGISTRAR_H_
#define STERNA_RPC_REGISTRAR_H_

#include "common.h"
#include "options.h"

/* What the tracker shall know; the server sends a new one over the socket at each change. */
typedef struct {
  char match_key[MOST_KEY + 1], holder[64]; /* one of both is empty */
} registration;

/* Registers until the server is gone. A byte to the server asks for a fresh match key. */
INTERNAL void registrar_run(int server, const server_options *o, int port);

#endif

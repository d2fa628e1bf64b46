/* One connection: handshake, session, and what is left to do when it is over. */
#ifndef STERNA_RPC_CONNECTION_H_
#define STERNA_RPC_CONNECTION_H_

#include "common.h"
#include "options.h"

/* What a connection asks the server about a client who knows the secret; the answer is one byte. */
typedef struct {
  char key[MOST_KEY + 1];
} admission;

/* Runs in a process of its own. server: the socket to the process that listens. */
INTERNAL int connection_serve(int socket, int server, server_options *o);
/* The same for the next client that comes to a proxy. */
INTERNAL int connection_serve_at_proxy(int server, server_options *o);
/* Serves frames over pipes, without a handshake. */
INTERNAL int connection_serve_pipes(int in, int out, server_options *o);

#endif

/* The process that listens: lets clients in, each into a process of its own. */
#ifndef STERNA_RPC_SERVER_H_
#define STERNA_RPC_SERVER_H_

#include "common.h"
#include "options.h"

/* Serves until it is told to end by SIGTERM or SIGINT. */
INTERNAL int server_run(server_options *o);

#endif

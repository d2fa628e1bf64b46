/* Addresses: where the server listens, and how it reaches a tracker. */
#ifndef STERNA_RPC_LISTEN_H_
#define STERNA_RPC_LISTEN_H_

#include "common.h"

/* Listens at the first free port of a range; port 0 lets the system choose. bound gets the port. */
INTERNAL int listen_at(const char *host, int port, int port_end, int *bound, int *out);
/* Whether nobody but this machine reaches it: 1 or 0; -1: there is no such address. */
INTERNAL int is_loopback(const char *host);
/* A peer of this socket that is gone without a word is found out within half a minute. */
INTERNAL void listen_keep_alive(int socket);
INTERNAL int connect_to(const char *host, int port, uint64_t deadline, int *out);

#endif

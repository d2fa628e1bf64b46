/* The server's command line. */
#ifndef STERNA_RPC_OPTIONS_H_
#define STERNA_RPC_OPTIONS_H_

#include "common.h"
#include "handshake.h"
#include "supervise.h"

typedef struct {
  const char *host, *key, *custom_address, *secret_file, *libraries;
  int port, port_end, sessions, is_silent, is_stdio, is_behind_proxy;
  char tracker_host[256]; /* empty: none */
  int tracker_port;
  double session_seconds; /* 0: no limit */
  session_limits limits;
  uint8_t secret[4096];
  size_t secret_size;
  int has_secret;
} server_options;

/* Reads and checks everything; the error is what to tell the user. 1: help or version was printed. */
INTERNAL int options_parse(int argc, char **argv, server_options *out);
INTERNAL shared_secret options_secret(const server_options *o);

#endif

/* The handshake: both sides prove that they know the secret, and say what they want and allow. */
#ifndef STERNA_RPC_HANDSHAKE_H_
#define STERNA_RPC_HANDSHAKE_H_

#include "common.h"
#include "stream.h"

enum { MOST_KEY = 255 };

enum { SERVICE_SESSION = 1, SERVICE_TRACKER = 2, SERVICE_PROXY = 3 };

enum {
  STATUS_ACCEPTED, STATUS_OTHER_VERSION, STATUS_SECRET_NEEDED, STATUS_WRONG_PROOF, STATUS_WRONG_KEY,
  STATUS_BUSY, STATUS_NO_SUCH_SERVICE
};

/* The shared secret; data is null where there is none. */
typedef struct {
  const uint8_t *data;
  size_t size;
} shared_secret;

/* What a client wants. */
typedef struct {
  uint8_t service;
  uint32_t timeout_ms, most_head;
  char key[MOST_KEY + 1];
} client_hello;

/* What the server answers to one who has proved that he knows the secret. */
typedef struct {
  int status;
  uint32_t timeout_ms;
  uint64_t array_limit;
  char name[MOST_KEY + 1];
} server_verdict;

/* Says what a client gets. */
typedef void (*handshake_decision)(void *context, const client_hello *hello, server_verdict *verdict);

/* The server's side. PermissionError or the like when the client gets nothing. */
INTERNAL int handshake_serve(stream *s, shared_secret secret, handshake_decision decide, void *context,
                             client_hello *hello, server_verdict *verdict);
/* The client's side, towards a tracker or a proxy. */
INTERNAL int handshake_ask(stream *s, shared_secret secret, int service, const char *key);

#endif

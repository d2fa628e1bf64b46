/* The handshake, as docs/rpc_protocol.md has it. */
#include "handshake.h"

#include <string.h>

#include "frame.h"
#include "hmac.h"
#include "wire.h"

enum { NONCE_SIZE = 32, VERSION = 1, HAS_SECRET = 1 };
enum { CLIENT_HELLO = 50, SERVER_HELLO = 40, VERDICT = 20 };

static const char client_label[] = "sterna rpc client 1"; /* with the zero behind it */
static const char server_label[] = "sterna rpc server 1";

/* All that both sides have said, which the proofs are over. */
typedef struct {
  uint8_t first[CLIENT_HELLO + MOST_KEY], second[SERVER_HELLO], proof[SHA256_SIZE];
  size_t first_size;
} transcript;

static void prove_client(shared_secret secret, const transcript *t, uint8_t out[SHA256_SIZE]) {
  hmac_sha256 code;
  memset(out, 0, SHA256_SIZE);
  if (!secret.data) return;
  hmac_begin(&code, secret.data, secret.size);
  hmac_add(&code, client_label, sizeof client_label);
  hmac_add(&code, t->first, t->first_size);
  hmac_add(&code, t->second, sizeof t->second);
  hmac_end(&code, out);
}

static void prove_server(shared_secret secret, const transcript *t, const void *verdict, size_t size,
                         uint8_t out[SHA256_SIZE]) {
  hmac_sha256 code;
  memset(out, 0, SHA256_SIZE);
  if (!secret.data) return;
  hmac_begin(&code, secret.data, secret.size);
  hmac_add(&code, server_label, sizeof server_label);
  hmac_add(&code, t->first, t->first_size);
  hmac_add(&code, t->second, sizeof t->second);
  hmac_add(&code, t->proof, sizeof t->proof);
  hmac_add(&code, verdict, size);
  hmac_end(&code, out);
}

/* ---- the server's side ---- */

static int read_hello(stream *s, transcript *t, client_hello *hello, int *version, int *flags) {
  if (stream_read(s, t->first, CLIENT_HELLO)) return -1;
  reader r = {t->first + 4, t->first + CLIENT_HELLO, 0};
  *version = (int)get_number(&r, 2);
  hello->service = (uint8_t)get_number(&r, 1);
  *flags = (int)get_number(&r, 1);
  get_bytes(&r, NONCE_SIZE);
  hello->timeout_ms = (uint32_t)get_number(&r, 4);
  hello->most_head = (uint32_t)get_number(&r, 4);
  size_t size = (size_t)get_number(&r, 2);
  if (memcmp(t->first, "STRN", 4) || size > MOST_KEY)
    return sterna_set_error("RPCProtocolError", "what came is no hello of a Sterna client");
  if (stream_read(s, t->first + CLIENT_HELLO, size)) return -1;
  t->first_size = CLIENT_HELLO + size;
  memcpy(hello->key, t->first + CLIENT_HELLO, size);
  hello->key[size] = 0;
  if (strlen(hello->key) != size || !is_utf8(hello->key, size))
    return sterna_set_error("RPCProtocolError", "the key of a client is no text");
  return 0;
}

static int send_hello(stream *s, shared_secret secret, int status, transcript *t) {
  writer w = {NULL, 0, 0, 0};
  uint8_t nonce[NONCE_SIZE];
  if (random_bytes(nonce, sizeof nonce)) return -1;
  put_bytes(&w, "STRN", 4);
  put_number(&w, VERSION, 2);
  put_number(&w, (uint64_t)status, 1);
  put_number(&w, secret.data ? HAS_SECRET : 0, 1);
  put_bytes(&w, nonce, sizeof nonce);
  int failed = w.failed ? sterna_set_error("MemoryError", "no memory") : 0;
  if (!failed) memcpy(t->second, w.data, SERVER_HELLO);
  writer_free(&w);
  return failed || stream_write(s, t->second, SERVER_HELLO) ? -1 : 0;
}

static int send_verdict(stream *s, shared_secret secret, const server_verdict *v, const transcript *t) {
  writer w = {NULL, 0, 0, 0};
  uint8_t proof[SHA256_SIZE];
  int accepted = v->status == STATUS_ACCEPTED;
  size_t name_size = accepted ? strlen(v->name) : 0;
  put_number(&w, (uint64_t)v->status, 1);
  put_number(&w, 0, 1);
  put_number(&w, accepted ? v->timeout_ms : 0, 4);
  put_number(&w, accepted ? MOST_HEAD : 0, 4);
  put_number(&w, accepted ? v->array_limit : 0, 8);
  put_number(&w, name_size, 2);
  put_bytes(&w, v->name, name_size);
  memset(proof, 0, sizeof proof);
  if (accepted && !w.failed) prove_server(secret, t, w.data, w.size, proof);
  put_bytes(&w, proof, sizeof proof);
  int failed = w.failed ? sterna_set_error("MemoryError", "no memory") : stream_write(s, w.data, w.size);
  writer_free(&w);
  return failed;
}

static int refuse_client(int status) {
  static const char *const reasons[] = {
      "", "a client speaks another version of the protocol", "a client has no secret",
      "a client does not know the secret", "a client has another key",
      "a client came while this server was busy", "a client asked for a service that is not offered"};
  return sterna_set_error("PermissionError", reasons[status]);
}

int handshake_serve(stream *s, shared_secret secret, handshake_decision decide, void *context,
                    client_hello *hello, server_verdict *verdict) {
  transcript t;
  uint8_t expected[SHA256_SIZE];
  int version, flags, status = STATUS_ACCEPTED;
  if (read_hello(s, &t, hello, &version, &flags)) return -1;
  if (secret.data && !(flags & HAS_SECRET)) status = STATUS_SECRET_NEEDED;
  if (version != VERSION) status = STATUS_OTHER_VERSION;
  if (send_hello(s, secret, status, &t)) return -1;
  if (status) return refuse_client(status);
  if (stream_read(s, t.proof, sizeof t.proof)) return -1;
  prove_client(secret, &t, expected);
  *verdict = (server_verdict){.status = STATUS_WRONG_PROOF};
  if (secret_equal(t.proof, expected, sizeof expected)) {
    verdict->status = hello->service == SERVICE_SESSION ? STATUS_ACCEPTED : STATUS_NO_SUCH_SERVICE;
    if (!verdict->status) decide(context, hello, verdict);
  }
  if (send_verdict(s, secret, verdict, &t)) return -1;
  return verdict->status ? refuse_client(verdict->status) : 0;
}

/* ---- the client's side ---- */

static int send_request(stream *s, shared_secret secret, int service, const char *key, transcript *t) {
  writer w = {NULL, 0, 0, 0};
  uint8_t nonce[NONCE_SIZE];
  size_t key_size = strlen(key);
  if (random_bytes(nonce, sizeof nonce)) return -1;
  put_bytes(&w, "STRN", 4);
  put_number(&w, VERSION, 2);
  put_number(&w, (uint64_t)service, 1);
  put_number(&w, secret.data ? HAS_SECRET : 0, 1);
  put_bytes(&w, nonce, sizeof nonce);
  put_number(&w, 0, 4);
  put_number(&w, MOST_HEAD, 4);
  put_number(&w, key_size, 2);
  put_bytes(&w, key, key_size);
  int failed = w.failed ? sterna_set_error("MemoryError", "no memory") : 0;
  if (!failed) memcpy(t->first, w.data, w.size);
  t->first_size = w.size;
  writer_free(&w);
  return failed || stream_write(s, t->first, t->first_size) ? -1 : 0;
}

static int check_status(int status) {
  if (status == STATUS_SECRET_NEEDED || status == STATUS_WRONG_PROOF)
    return sterna_set_error("PermissionError", "it refused this server: give both the same secret");
  if (status) return sterna_set_errorf("RPCError", "it refused this server with the status %d", status);
  return 0;
}

int handshake_ask(stream *s, shared_secret secret, int service, const char *key) {
  transcript t;
  uint8_t verdict[VERDICT + MOST_KEY], expected[SHA256_SIZE], proof[SHA256_SIZE];
  if (send_request(s, secret, service, key, &t) || stream_read(s, t.second, SERVER_HELLO)) return -1;
  if (memcmp(t.second, "STRN\x01\x00", 6))
    return sterna_set_error("RPCProtocolError", "what answers there is no Sterna server");
  if (check_status(t.second[6])) return -1;
  if (secret.data && !(t.second[7] & HAS_SECRET))
    return sterna_set_error("PermissionError", "it has no secret, so nothing proves that it is yours");
  prove_client(secret, &t, t.proof);
  if (stream_write(s, t.proof, sizeof t.proof) || stream_read(s, verdict, VERDICT)) return -1;
  size_t name_size = (size_t)verdict[VERDICT - 2] | (size_t)verdict[VERDICT - 1] << 8;
  if (name_size > MOST_KEY) return sterna_set_error("RPCProtocolError", "its name is too long");
  if (stream_read(s, verdict + VERDICT, name_size) || stream_read(s, proof, sizeof proof)) return -1;
  if (check_status(verdict[0])) return -1;
  prove_server(secret, &t, verdict, VERDICT + name_size, expected);
  if (!secret_equal(proof, expected, sizeof expected))
    return sterna_set_error("PermissionError", "it does not know the secret");
  return 0;
}

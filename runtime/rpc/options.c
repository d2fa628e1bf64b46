/* The server's command line. */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "listen.h"

static const char help[] =
    "usage: rpc_server [OPTION VALUE]...\n"
    "Runs compiled models for clients on other machines.\n"
    "\n"
    "  --host ADDRESS        where to listen (127.0.0.1); others than loopback need a secret\n"
    "  --port N              the first port to try (9090); 0: any\n"
    "  --port-end N          the last one (9199)\n"
    "  --key TEXT            name that clients ask for, like rpi4\n"
    "  --secret-file FILE    holds the secret that both sides prove to know; else it is the\n"
    "                        STERNA_RPC_SECRET of the environment\n"
    "  --tracker HOST:PORT   tracker to tell when it is free\n"
    "  --custom-addr ADDRESS where clients of the tracker reach this server\n"
    "  --load-library A:B    libraries to load at first\n"
    "  --max-sessions N      at a time (1)\n"
    "  --max-seconds S       longest session; 0: any\n"
    "  --max-memory BYTES    of a session's process, and of its arrays (three quarters of the\n"
    "                        machine's); 0: any; suffixes K, M, G\n"
    "  --max-disk BYTES      of a session's files (8G)\n"
    "  --max-cpu S           processor seconds of a session; 0: any\n"
    "  --silent              print nothing but errors\n"
    "  --through-proxy       --host and --port are those of a proxy to wait for clients at\n"
    "  --stdio               serve one client over standard input and output\n"
    "  --version, --help\n";

typedef int (*option_parser)(const char *value, void *field);

static int parse_text(const char *value, void *field) {
  *(const char **)field = value;
  return 0;
}

static int parse_int(const char *value, void *field) {
  char *end;
  errno = 0;
  long number = strtol(value, &end, 10);
  if (errno || end == value || *end || number < 0 || number > 65535) return -1;
  *(int *)field = (int)number;
  return 0;
}

static int parse_seconds(const char *value, void *field) {
  char *end;
  double number = strtod(value, &end);
  if (end == value || *end || !(number >= 0 && number < 4e6)) return -1;
  *(double *)field = number;
  return 0;
}

static int parse_bytes(const char *value, void *field) {
  char *end;
  errno = 0;
  unsigned long long number = strtoull(value, &end, 10);
  const char *units = "KMG", *unit = *end ? strchr(units, *end) : NULL;
  int shift = unit ? 10 * (int)(unit - units + 1) : 0;
  int is_number = !errno && end != value && *value != '-' && (!*end || (unit && !end[1]));
  if (!is_number || number > UINT64_MAX >> shift) return -1;
  *(uint64_t *)field = (uint64_t)number << shift;
  return 0;
}

static int parse_address(const char *value, void *field) {
  server_options *o = field;
  const char *colon = strrchr(value, ':');
  if (!colon || colon == value || (size_t)(colon - value) >= sizeof o->tracker_host) return -1;
  memcpy(o->tracker_host, value, (size_t)(colon - value));
  o->tracker_host[colon - value] = 0;
  return parse_int(colon + 1, &o->tracker_port);
}

static int parse_one(server_options *o, const char *name, const char *value) {
  const struct {
    const char *name;
    option_parser parse;
    void *field;
  } known[] = {
      {"--host", parse_text, &o->host},
      {"--port", parse_int, &o->port},
      {"--port-end", parse_int, &o->port_end},
      {"--key", parse_text, &o->key},
      {"--secret-file", parse_text, &o->secret_file},
      {"--tracker", parse_address, o},
      {"--custom-addr", parse_text, &o->custom_address},
      {"--load-library", parse_text, &o->libraries},
      {"--max-sessions", parse_int, &o->sessions},
      {"--max-seconds", parse_seconds, &o->session_seconds},
      {"--max-memory", parse_bytes, &o->limits.memory_bytes},
      {"--max-disk", parse_bytes, &o->limits.file_bytes},
      {"--max-cpu", parse_bytes, &o->limits.cpu_seconds},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(known[i].name, name)) continue;
    if (!value) return sterna_set_errorf("ValueError", "%s needs a value", name);
    if (!known[i].parse(value, known[i].field)) return 0;
    return sterna_set_errorf("ValueError", "%s '%.100s' is not understood; see --help", name, value);
  }
  return sterna_set_errorf("ValueError", "there is no option '%.100s'; see --help", name);
}

/* ---- the secret ---- */

static int set_secret(server_options *o, const char *from, const void *data, size_t size) {
  if (size >= sizeof o->secret || !size)
    return sterna_set_errorf("ValueError", "the secret of %.200s must have 1 to %zu bytes", from,
                             sizeof o->secret - 1);
  memcpy(o->secret, data, size);
  o->secret_size = size;
  o->has_secret = 1;
  return 0;
}

static int read_secret(server_options *o) {
  char text[sizeof o->secret + 2];
  char *set = getenv("STERNA_RPC_SECRET");
  if (!o->secret_file) {
    int failed = set && *set ? set_secret(o, "STERNA_RPC_SECRET", set, strlen(set)) : 0;
    if (set) memset(set, 0, strlen(set)); /* sessions inherit the environment */
    return failed;
  }
  FILE *file = fopen(o->secret_file, "rb");
  if (!file) return sterna_set_errorf("OSError", "--secret-file '%.200s': %s", o->secret_file, strerror(errno));
  size_t size = fread(text, 1, sizeof text, file);
  fclose(file);
  while (size && (text[size - 1] == '\n' || text[size - 1] == '\r')) size--;
  return set_secret(o, o->secret_file, text, size);
}

static int check_options(const server_options *o) {
  if (strlen(o->key) > MOST_KEY / 2) return sterna_set_error("ValueError", "--key is too long");
  if (*o->tracker_host && !*o->key)
    return sterna_set_error("ValueError", "--tracker needs --key: what clients ask for");
  if (o->port_end < o->port && o->port && !o->is_behind_proxy)
    return sterna_set_error("ValueError", "--port-end lies before --port");
  if (!o->sessions) return sterna_set_error("ValueError", "--max-sessions must be at least 1");
  int local = o->is_stdio ? 1 : is_loopback(o->host);
  if (local < 0) return -1;
  if (o->is_behind_proxy && (*o->tracker_host || !*o->key))
    return sterna_set_error("ValueError", "--through-proxy needs a --key, and no --tracker");
  if (!local && !o->has_secret)
    return sterna_set_errorf("PermissionError",
                             "--host %.200s lets other machines run code here; set STERNA_RPC_SECRET, or "
                             "name a --secret-file, so that only those who know the secret can",
                             o->host);
  return 0;
}

shared_secret options_secret(const server_options *o) {
  return (shared_secret){o->has_secret ? o->secret : NULL, o->secret_size};
}

/* Three quarters of the machine's memory, where the system tells. */
static void choose_memory(session_limits *limits) {
  if (limits->memory_bytes != UINT64_MAX) return;
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  limits->memory_bytes = pages > 0 && size > 0 ? (uint64_t)pages / 4 * 3 * (uint64_t)size : 0;
  limits->is_default = 1;
}

int options_parse(int argc, char **argv, server_options *out) {
  *out = (server_options){.host = "127.0.0.1", .key = "", .custom_address = "", .libraries = "",
                          .port = 9090, .port_end = 9199, .sessions = 1,
                          .limits = {.memory_bytes = UINT64_MAX, .file_bytes = (uint64_t)8 << 30}};
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--help")) return fputs(help, stdout), 1;
    if (!strcmp(argv[i], "--version")) return printf("sterna %s\n", sterna_version()), 1;
    if (!strcmp(argv[i], "--silent"))
      out->is_silent = 1;
    else if (!strcmp(argv[i], "--stdio"))
      out->is_stdio = 1;
    else if (!strcmp(argv[i], "--through-proxy"))
      out->is_behind_proxy = 1;
    else if (parse_one(out, argv[i], i + 1 < argc ? argv[i + 1] : NULL))
      return -1;
    else
      i++;
  }
  if (!out->port) out->port_end = 0;
  choose_memory(&out->limits);
  return read_secret(out) || check_options(out) ? -1 : 0;
}

/* rpc_server: runs compiled models for clients on other machines. docs/rpc.md is its manual. */
#include "common.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "connection.h"
#include "server.h"

/* What the client's code prints must not get between frames. */
static int serve_pipes(server_options *o) {
  int in = dup(STDIN_FILENO), out = dup(STDOUT_FILENO), nothing = open("/dev/null", O_RDONLY);
  if (in < 0 || out < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
      dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    return sterna_set_error("OSError", "--stdio: standard input or output is closed");
  close(nothing);
  return connection_serve_pipes(in, out, o);
}

static int load_libraries(const char *names) {
  while (*names) {
    char path[1024];
    size_t size = strcspn(names, ":");
    snprintf(path, sizeof path, "%.*s", (int)size, names);
    if (size && sterna_load_extension(path, NULL)) return -1;
    names += size + (names[size] == ':');
  }
  return 0;
}

int main(int argc, char **argv) {
  static server_options options;
  int parsed = options_parse(argc, argv, &options);
  if (parsed == 1) return 0;
  int failed = parsed || load_libraries(options.libraries);
  if (!failed) failed = options.is_stdio ? serve_pipes(&options) : server_run(&options);
  if (failed) fprintf(stderr, "error: %s\n", sterna_last_error());
  sterna_shutdown();
  return failed ? parsed ? 2 : 1 : 0;
}

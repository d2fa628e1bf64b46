/* What concerns the process as a whole. */
#include "internal.h"

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *sterna_version(void) {
  return VERSION_TEXT(STERNA_VERSION_MAJOR, STERNA_VERSION_MINOR, STERNA_VERSION_PATCH);
}

void sterna_shutdown(void) {
  threads_shutdown();
  registry_shutdown();
  symbols_shutdown();
  library_shutdown();
  workspace_shutdown();
  sterna_clear_error();
}

/* A fork while another thread holds a lock would leave it held in the child for good. */
static void before_fork(void) {
  registry_before_fork();
  module_before_fork();
  symbols_before_fork();
  library_before_fork();
  error_before_fork();
  workspace_before_fork();
  model_before_fork();
}

static void after_fork(void) {
  model_after_fork();
  workspace_after_fork();
  error_after_fork();
  library_after_fork();
  symbols_after_fork();
  module_after_fork();
  registry_after_fork();
}

static void in_child(void) {
  after_fork();
  threads_after_fork();
}

__attribute__((constructor)) static void prepare_for_forks(void) {
  platform_on_fork(before_fork, after_fork, in_child);
}

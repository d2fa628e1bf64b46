/* Streams of devices that have them, as their back ends offer them to everybody by name. */
#include "core.h"

#include <stdio.h>

enum { GET, SET, WAIT, QUESTIONS, TYPES = 32 };

static const char *const names[QUESTIONS] = {"get_stream", "set_stream", "wait_for_stream"};

/* A back end's function, or null when it has no streams. */
static sterna_function *find(DLDevice device, int question) {
  static sterna_function *known[TYPES][QUESTIONS];
  char name[64];
  int type = (int)device.device_type;
  if (type <= kDLCPU || type >= TYPES) return NULL;
  if (known[type][question]) return known[type][question];
  if (!sterna_device_exists(device)) return NULL;
  snprintf(name, sizeof name, "sterna.%s.%s", names[question], sterna_device_name(device.device_type));
  if (sterna_get_global(name, &known[type][question])) sterna_clear_error();
  return known[type][question];
}

static int ask(DLDevice device, int question, void *stream, void *other, sterna_any *ret) {
  static const int32_t counts[QUESTIONS] = {1, 2, 3};
  sterna_function *function = find(device, question);
  sterna_any args[3] = {sterna_any_int(device.device_id), sterna_any_int((int64_t)(intptr_t)stream),
                        sterna_any_int((int64_t)(intptr_t)other)};
  *ret = sterna_any_none();
  return function ? function->call(function, args, counts[question], ret) : 0;
}

int has_streams(DLDevice device) { return find(device, GET) != NULL; }

int get_stream(DLDevice device, void **out) {
  sterna_any found;
  if (ask(device, GET, NULL, NULL, &found)) return -1;
  *out = found.v_ptr;
  return 0;
}

int set_stream(DLDevice device, void *stream) {
  sterna_any before;
  return ask(device, SET, stream, NULL, &before);
}

int wait_for_stream(DLDevice device, void *stream, void *other) {
  sterna_any nothing;
  return stream == other ? 0 : ask(device, WAIT, stream, other, &nothing);
}

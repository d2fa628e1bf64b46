/*
 * JSON, strictly. A text is checked once as a whole; after that it is its own tree and is walked in
 * place, without memory. Every walk ends at a bracket that the check has seen.
 */
#include "internal.h"

#include <string.h>

enum { DEEPEST = 32 };

typedef struct {
  const char *at, *end;
  int depth;
} json_reader;

static int is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  c = (char)(c | 32);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char *skip_space(const char *at) {
  while (is_space(*at)) at++;
  return at;
}

/* ---- the check: each gives 0, or -1 with the reader where it went wrong ---- */

static int json_peek(json_reader *r) {
  while (r->at < r->end && is_space(*r->at)) r->at++;
  return r->at < r->end ? (unsigned char)*r->at : -1;
}

static int check_value(json_reader *r);

static int check_digits(json_reader *r) {
  const char *start = r->at;
  while (r->at < r->end && is_digit(*r->at)) r->at++;
  return r->at > start ? 0 : -1;
}

static int json_take(json_reader *r, char c) { return r->at < r->end && *r->at == c ? r->at++, 1 : 0; }

static int check_number(json_reader *r) {
  json_take(r, '-');
  if (!json_take(r, '0') && check_digits(r)) return -1;
  if (json_take(r, '.') && check_digits(r)) return -1;
  if (json_take(r, 'e') || json_take(r, 'E')) {
    if (!json_take(r, '+')) json_take(r, '-');
    return check_digits(r);
  }
  return 0;
}

static int check_escape(json_reader *r) {
  if (json_take(r, 'u')) {
    for (int i = 0; i < 4; i++, r->at++)
      if (r->at == r->end || hex_digit(*r->at) < 0) return -1;
    return 0;
  }
  if (r->at == r->end || !*r->at || !strchr("\"\\/bfnrt", *r->at)) return -1;
  r->at++;
  return 0;
}

static int check_string(json_reader *r) {
  r->at++;
  for (; r->at < r->end && (unsigned char)*r->at >= ' '; r->at++) {
    if (json_take(r, '"')) return 0;
    if (json_take(r, '\\')) {
      if (check_escape(r)) return -1;
      r->at--;
    }
  }
  return -1;
}

static int check_container(json_reader *r, int is_object) {
  char closing = is_object ? '}' : ']';
  if (r->depth == DEEPEST) return -1;
  r->depth++;
  r->at++;
  if (json_peek(r) != closing) do {
      if (is_object) {
        if (json_peek(r) != '"' || check_string(r) || json_peek(r) != ':') return -1;
        r->at++;
      }
      if (check_value(r)) return -1;
      json_peek(r);
    } while (json_take(r, ','));
  r->depth--;
  return json_take(r, closing) ? 0 : -1;
}

static int check_value(json_reader *r) {
  static const char *const words[] = {"true", "false", "null"};
  int c = json_peek(r);
  if (c == '{' || c == '[') return check_container(r, c == '{');
  if (c == '"') return check_string(r);
  for (int i = 0; i < 3; i++) {
    size_t size = strlen(words[i]);
    if ((size_t)(r->end - r->at) >= size && memcmp(r->at, words[i], size) == 0) {
      r->at += size;
      return 0;
    }
  }
  return c == -1 ? -1 : check_number(r);
}

int json_check(const char *text, size_t size, const char *what) {
  json_reader r = {text, text + size, 0};
  if (json_peek(&r) == '{' && check_value(&r) == 0 && json_peek(&r) == -1) return 0;
  int line = 1, column = 1;
  for (const char *c = text; c < r.at; c++) {
    column = *c == '\n' ? 1 : column + 1;
    line += *c == '\n';
  }
  return sterna_set_errorf("ValueError", "%s is no JSON object: it is wrong at line %d, column %d%s", what,
                           line, column, r.at == r.end ? ", where it ends" : "");
}

/* ---- walking ---- */

static const char *skip_string(const char *at) {
  for (at++; *at != '"'; at++)
    if (*at == '\\') at++;
  return at + 1;
}

static const char *skip_value(const char *at) {
  int depth = 0;
  do {
    if (*at == '"') at = skip_string(at);
    else {
      depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
      at++;
    }
  } while (depth);
  return at;
}

/* Past a value and the spaces behind it. A number or a word is skipped to what ends it. */
static const char *skip_past(const char *at) {
  if (*at == '"' || *at == '{' || *at == '[') return skip_space(skip_value(at));
  while (*at != ',' && *at != '}' && *at != ']' && !is_space(*at)) at++;
  return skip_space(at);
}

const char *json_first(const char *container) {
  const char *at = skip_space(container + 1);
  return *at == '}' || *at == ']' ? NULL : at;
}

const char *json_next(const char *item) {
  const char *at = skip_past(item);
  return *at == ',' || *at == ':' ? skip_space(at + 1) : NULL;
}

int json_is(const char *string, const char *text) {
  size_t size = strlen(text);
  return *string == '"' && strncmp(string + 1, text, size) == 0 && string[size + 1] == '"';
}

void json_members(const char *object, const char *const *names, const char **values, size_t count) {
  const char *value;
  for (size_t i = 0; i < count; i++) values[i] = NULL;
  if (!object || *object != '{') return;
  for (const char *key = json_first(object); key; key = json_next(value)) {
    value = json_next(key);
    for (size_t i = 0; i < count; i++)
      if (!values[i] && json_is(key, names[i])) values[i] = value;
  }
}

const char *json_member(const char *object, const char *name) {
  const char *value;
  json_members(object, &name, &value, 1);
  return value;
}

int64_t json_count(const char *array) {
  if (!array || *array != '[') return -1;
  int64_t count = 0;
  for (const char *item = json_first(array); item; item = json_next(item)) count++;
  return count;
}

int json_integer(const char *value, int64_t *out) {
  const char *at = value;
  int quoted = *at == '"';
  at += quoted;
  int negative = *at == '-';
  at += negative;
  if (!is_digit(*at)) return -1;
  uint64_t number = 0;
  for (; is_digit(*at); at++) {
    if (number > ((uint64_t)INT64_MAX - 9) / 10) return -1;
    number = number * 10 + (uint64_t)(*at - '0');
  }
  if (quoted ? *at != '"' : *at == '.' || *at == 'e' || *at == 'E') return -1;
  *out = negative ? -(int64_t)number : (int64_t)number;
  return 0;
}

static uint32_t read_hex(const char *at) {
  uint32_t code = 0;
  for (int i = 0; i < 4; i++) code = code << 4 | (uint32_t)hex_digit(at[i]);
  return code;
}

/* The code point of an escape, at being behind its backslash; moves at past it. */
static uint32_t read_escape(const char **at) {
  static const char names[] = "bfnrt", codes[] = "\b\f\n\r\t";
  char c = *(*at)++;
  if (c != 'u') {
    const char *found = strchr(names, c);
    return found ? (uint32_t)codes[found - names] : (uint32_t)c;
  }
  uint32_t code = read_hex(*at);
  *at += 4;
  if (code >> 10 == 0x36 && (*at)[0] == '\\' && (*at)[1] == 'u' && read_hex(*at + 2) >> 10 == 0x37) {
    code = 0x10000 + ((code & 0x3ff) << 10 | (read_hex(*at + 2) & 0x3ff));
    *at += 6;
  }
  return code >> 11 == 0x1b ? 0xfffd : code; /* half a pair stands for nothing */
}

static size_t write_utf8(uint32_t code, char *out) {
  size_t more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static const unsigned char heads[] = {0, 0xc0, 0xe0, 0xf0};
  out[0] = (char)(heads[more] | code >> 6 * more);
  for (size_t i = 1; i <= more; i++) out[i] = (char)(0x80 | (code >> 6 * (more - i) & 0x3f));
  return more + 1;
}

size_t json_text(const char *string, char *out) {
  char room[4];
  size_t size = 0;
  for (const char *at = string + 1; *at != '"';) {
    if (*at != '\\') {
      if (out) out[size] = *at;
      at++;
      size++;
      continue;
    }
    at++;
    size += write_utf8(read_escape(&at), out ? out + size : room);
  }
  return size;
}

/* Branch and bound: depth-first search for places of buffers in an arena of fixed size.
 *
 * If a plan exists, one exists in which no buffer could lie lower with the others where they are. A
 * step of the search takes an unplaced buffer below which none that it meets has room: it lies where
 * it rests now, on the highest end of the placed ones that it meets, and all others above it; or it
 * is held back until another one, placed where it would lie, lifts it. */
#include "search.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE_BITS = 18, WORTH_REMEMBERING = 3 };

typedef struct {
  uint64_t one, two;
} state_hash;

/* What one level of the search keeps; levels are reused. */
typedef struct {
  int32_t room;
  int32_t *members, *choices;
  int64_t *saved; /* where members rested, doubled, and whether they were held back */
} level;

typedef struct {
  const packer_buffer *buffers;
  int32_t count, sections;
  int64_t capacity, work, work_limit, needed;
  int64_t *rests;    /* where an unplaced buffer would rest now */
  int64_t *lowest;   /* where it can lie at the lowest */
  int64_t *offsets;
  int64_t *stacked;  /* per section: sizes of the buffers that lie at a place or above it */
  int32_t *reach;    /* per section: where the lives that begin there end */
  int32_t *twin;     /* the equal buffer before this one, or -1 */
  char *placed, *held;
  level *levels;
  state_hash *failed;
} search;

static int meet(const packer_buffer *a, const packer_buffer *b) {
  return a->first < b->last && b->first < a->last;
}

static level *level_for(search *s, int32_t depth, int32_t count) {
  level *made = &s->levels[depth];
  if (made->room >= count) return made;
  free(made->members);
  free(made->choices);
  free(made->saved);
  made->room = count;
  made->members = malloc((size_t)count * sizeof *made->members);
  made->choices = malloc((size_t)count * sizeof *made->choices);
  made->saved = malloc((size_t)count * sizeof *made->saved);
  if (made->members && made->choices && made->saved) return made;
  made->room = 0;
  return NULL;
}

/* Finds where members can lie at the lowest; 0 if one that is held back can be lifted by none. */
static int find_lowest(search *s, const int32_t *members, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    int32_t b = members[i];
    s->lowest[b] = s->rests[b] + s->held[b];
  }
  for (int32_t i = 0; i < count; i++) {
    int32_t b = members[i];
    if (!s->held[b]) continue;
    int64_t lifted = INT64_MAX, rests = s->rests[b], end = rests + s->buffers[b].size;
    for (int32_t j = 0; j < count; j++) {
      int32_t other = members[j];
      if (s->lowest[other] >= end || other == b) continue;
      if (!meet(&s->buffers[b], &s->buffers[other])) continue;
      int64_t top = s->lowest[other] + s->buffers[other].size;
      if (top < lifted) lifted = top;
    }
    if (lifted == INT64_MAX) return 0;
    if (lifted > rests) s->lowest[b] = lifted;
    s->work += count;
  }
  return 1;
}

/* Sorts members from high to low; they come almost sorted. */
static void sort_by_lowest(const search *s, int32_t *members, int32_t count) {
  for (int32_t i = 1; i < count; i++) {
    int32_t b = members[i], j = i;
    for (; j && s->lowest[members[j - 1]] < s->lowest[b]; j--) members[j] = members[j - 1];
    members[j] = b;
  }
}

/* The sections in which members live. */
static void find_range(const search *s, const int32_t *members, int32_t count, int32_t *from,
                       int32_t *to) {
  *from = s->buffers[members[0]].first;
  *to = s->buffers[members[0]].last;
  for (int32_t i = 1; i < count; i++) {
    const packer_buffer *b = &s->buffers[members[i]];
    if (b->first < *from) *from = b->first;
    if (b->last > *to) *to = b->last;
  }
}

/* Whether in every section the buffers that must lie above some place have room above it. */
static int has_room(search *s, const int32_t *members, int32_t count) {
  int32_t from, to;
  find_range(s, members, count, &from, &to);
  memset(s->stacked + from, 0, (size_t)(to - from) * sizeof *s->stacked);
  for (int32_t i = 0; i < count; i++) {
    const packer_buffer *b = &s->buffers[members[i]];
    int64_t most = 0, size = b->size, *stacked = s->stacked;
    for (int32_t at = b->first; at < b->last; at++) {
      stacked[at] += size;
      most = stacked[at] > most ? stacked[at] : most;
    }
    s->work += b->last - b->first;
    if (s->lowest[members[i]] + most > s->capacity) {
      int64_t needed = s->lowest[members[i]] + most;
      if (needed < s->needed) s->needed = needed;
      return 0;
    }
  }
  return 1;
}

static uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* What can still become of members depends on where each rests, and whether it is held back. */
static state_hash hash_of(const search *s, const int32_t *members, int32_t count) {
  state_hash hash = {0, 0};
  for (int32_t i = 0; i < count; i++) {
    int32_t b = members[i];
    uint64_t rests = (uint64_t)s->rests[b] * 2 + (uint64_t)s->held[b];
    uint64_t key = mix(rests * 0x9e3779b97f4a7c15u + (uint64_t)(b + 1));
    hash.one += key;
    hash.two += mix(key ^ ((uint64_t)b << 32 | 0x5bd1e995u));
  }
  return hash;
}

static state_hash *remembered(const search *s, state_hash hash) {
  return &s->failed[hash.one >> (64 - TABLE_BITS)];
}

/* Numbers the parts of the members that share no section; gives how many there are. */
static int32_t split(search *s, const int32_t *members, int32_t count) {
  int32_t from, to, parts = 0, end = 0;
  find_range(s, members, count, &from, &to);
  memset(s->reach + from, 0, (size_t)(to - from) * sizeof *s->reach);
  for (int32_t i = 0; i < count; i++) {
    const packer_buffer *b = &s->buffers[members[i]];
    if (b->last > s->reach[b->first]) s->reach[b->first] = b->last;
  }
  s->work += to - from;
  for (int32_t at = from; at < to; at++) {
    int32_t reach = s->reach[at];
    if (!reach) continue;
    if (at >= end) parts++;
    if (reach > end) end = reach;
    s->reach[at] = parts; /* of the members that begin here */
  }
  return parts;
}

static int64_t state_of(const search *s, int32_t b) { return s->rests[b] * 2 + s->held[b]; }

static void restore(search *s, int32_t b, int64_t state) {
  s->rests[b] = state / 2;
  s->held[b] = state % 2;
}

static packer_outcome solve(search *s, int32_t *members, int32_t count, int32_t depth);

/* Solves parts one by one; members are sorted by part, and what was placed is taken back. */
static packer_outcome solve_parts(search *s, const int32_t *members, int32_t count, int32_t parts,
                                  int32_t depth) {
  level *here = level_for(s, depth, count);
  if (!here) return PACKER_NO_MEMORY;
  int32_t filled = 0;
  int32_t *begins = here->choices; /* parts <= count */
  for (int32_t part = 1; part <= parts; part++) {
    begins[part - 1] = filled;
    for (int32_t i = 0; i < count; i++)
      if (s->reach[s->buffers[members[i]].first] == part) here->members[filled++] = members[i];
  }
  for (int32_t i = 0; i < count; i++) here->saved[i] = state_of(s, here->members[i]);
  packer_outcome outcome = PACKER_FOUND;
  for (int32_t part = 0; part < parts && outcome == PACKER_FOUND; part++) {
    int32_t begin = begins[part], end = part + 1 < parts ? begins[part + 1] : count;
    outcome = solve(s, here->members + begin, end - begin, depth + 1);
  }
  for (int32_t i = 0; outcome != PACKER_FOUND && i < count; i++) {
    restore(s, here->members[i], here->saved[i]);
    s->placed[here->members[i]] = 0;
  }
  return outcome;
}

/* The next member to decide on: the lowest, and of these the first; -1 if there is none. */
static int32_t choose(const search *s, const int32_t *members, int32_t count) {
  int32_t best = -1;
  for (int32_t i = 0; i < count; i++) {
    int32_t b = members[i];
    if (s->held[b] || (s->twin[b] >= 0 && !s->placed[s->twin[b]])) continue;
    if (best < 0 || s->rests[b] < s->rests[best] || (s->rests[b] == s->rests[best] && b < best))
      best = b;
  }
  for (int32_t i = 0; best >= 0 && i < count; i++) {
    int32_t b = members[i];
    if (s->rests[b] + s->buffers[b].size > s->rests[best] || b == best) continue;
    if (meet(&s->buffers[b], &s->buffers[best])) return -1;
  }
  return best;
}

static packer_outcome place(search *s, const int32_t *members, int32_t count, int32_t chosen,
                            level *here, int32_t depth) {
  int64_t end = s->rests[chosen] + s->buffers[chosen].size;
  int32_t left = 0;
  for (int32_t i = 0; i < count; i++) {
    int32_t b = members[i];
    here->saved[i] = state_of(s, b);
    if (b == chosen) continue;
    here->members[left++] = b;
    if (end > s->rests[b] && meet(&s->buffers[b], &s->buffers[chosen])) {
      s->rests[b] = end;
      s->held[b] = 0;
    }
  }
  s->offsets[chosen] = s->rests[chosen];
  s->placed[chosen] = 1;
  packer_outcome outcome = solve(s, here->members, left, depth + 1);
  if (outcome == PACKER_FOUND) return outcome;
  s->placed[chosen] = 0;
  for (int32_t i = 0; i < count; i++) restore(s, members[i], here->saved[i]);
  return outcome;
}

/* Decides on the members of one part that are left; held is how many it then holds back. */
static packer_outcome decide(search *s, int32_t *members, int32_t count, int32_t depth,
                             int32_t *held) {
  level *here = level_for(s, depth, count);
  if (!here) return PACKER_NO_MEMORY;
  for (;;) {
    int32_t chosen = choose(s, members, count);
    if (chosen < 0) return PACKER_IMPOSSIBLE;
    packer_outcome outcome = place(s, members, count, chosen, here, depth);
    if (outcome != PACKER_IMPOSSIBLE) return outcome;
    s->held[chosen] = 1;
    here->choices[(*held)++] = chosen;
    s->work += 4 * count;
    if (!find_lowest(s, members, count)) return PACKER_IMPOSSIBLE;
    sort_by_lowest(s, members, count);
    if (!has_room(s, members, count)) return PACKER_IMPOSSIBLE;
  }
}

static packer_outcome solve(search *s, int32_t *members, int32_t count, int32_t depth) {
  if (!count) return PACKER_FOUND;
  s->work += 4 * count;
  if (s->work > s->work_limit) return PACKER_STOPPED;
  if (!find_lowest(s, members, count)) return PACKER_IMPOSSIBLE;
  sort_by_lowest(s, members, count);
  if (!has_room(s, members, count)) return PACKER_IMPOSSIBLE;
  int32_t parts = split(s, members, count);
  if (parts > 1) return solve_parts(s, members, count, parts, depth);
  state_hash hash = hash_of(s, members, count), *memory = remembered(s, hash);
  if (memory->one == hash.one && memory->two == hash.two) return PACKER_IMPOSSIBLE;
  int32_t held = 0;
  packer_outcome outcome = decide(s, members, count, depth, &held);
  if (outcome == PACKER_FOUND) return outcome;
  for (int32_t i = 0; i < held; i++) s->held[s->levels[depth].choices[i]] = 0;
  if (outcome == PACKER_IMPOSSIBLE && count >= WORTH_REMEMBERING) *memory = hash;
  return outcome;
}

static void find_twins(search *s) {
  for (int32_t b = 0; b < s->count; b++) {
    const packer_buffer *one = &s->buffers[b];
    s->twin[b] = -1;
    for (int32_t a = 0; a < b; a++) {
      const packer_buffer *other = &s->buffers[a];
      if (one->size == other->size && one->first == other->first && one->last == other->last)
        s->twin[b] = a;
    }
  }
}

static void release(search *s) {
  for (int32_t i = 0; s->levels && i < 2 * s->count + 1; i++) {
    free(s->levels[i].members);
    free(s->levels[i].choices);
    free(s->levels[i].saved);
  }
  free(s->levels);
  free(s->failed);
  free(s->placed);
  free(s->held);
  free(s->twin);
  free(s->reach);
  free(s->stacked);
  free(s->lowest);
  free(s->rests);
}

packer_outcome packer_search(const packer_buffer *buffers, int32_t count, int32_t sections,
                             int64_t capacity, int64_t work_limit, int64_t *offsets,
                             packer_report *report) {
  size_t n = (size_t)count + 1, m = (size_t)sections + 1;
  search s = {.buffers = buffers, .count = count, .sections = sections, .capacity = capacity,
              .work_limit = work_limit, .needed = INT64_MAX, .offsets = offsets};
  s.rests = calloc(n, sizeof *s.rests);
  s.lowest = calloc(n, sizeof *s.lowest);
  s.stacked = calloc(m, sizeof *s.stacked);
  s.reach = calloc(m, sizeof *s.reach);
  s.twin = calloc(n, sizeof *s.twin);
  s.placed = calloc(n, sizeof *s.placed);
  s.held = calloc(n, sizeof *s.held);
  s.failed = calloc((size_t)1 << TABLE_BITS, sizeof *s.failed);
  s.levels = calloc(2 * n, sizeof *s.levels);
  int32_t *members = calloc(n, sizeof *members);
  packer_outcome outcome = PACKER_NO_MEMORY;
  if (s.rests && s.lowest && s.stacked && s.reach && s.twin && s.placed && s.held && s.failed && s.levels &&
      members) {
    find_twins(&s);
    for (int32_t b = 0; b < count; b++) members[b] = b;
    outcome = solve(&s, members, count, 0);
  }
  free(members);
  release(&s);
  report->work = s.work;
  report->needed = s.needed;
  return outcome;
}

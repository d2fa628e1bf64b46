/* A search for places of buffers in an arena of fixed size. */
#ifndef STERNA_PACKER_SEARCH_H_
#define STERNA_PACKER_SEARCH_H_

#include <stdint.h>

/* A buffer lives in the sections first up to, not including, last. */
typedef struct {
  int64_t size;
  int32_t first, last;
} packer_buffer;

typedef enum { PACKER_FOUND, PACKER_IMPOSSIBLE, PACKER_STOPPED, PACKER_NO_MEMORY } packer_outcome;

typedef struct {
  int64_t work;   /* what was done: buffers and sections looked at */
  int64_t needed; /* if impossible, a size that no plan can go below */
} packer_report;

/* Sizes are positive. The order of the buffers is the order in which they are tried. */
packer_outcome packer_search(const packer_buffer *buffers, int32_t count, int32_t sections,
                             int64_t capacity, int64_t work_limit, int64_t *offsets,
                             packer_report *report);

#endif

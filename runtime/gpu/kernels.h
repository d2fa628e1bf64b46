/* What the back ends of all GPU languages share: the kernels of a module, and how they are called.
 *
 * A module of kernels is kept in files as bytes, numbers being eight bytes, the lowest first:
 *   number of programs, then for each
 *     number of kernels, then for each three texts (length and characters): its name; its parameters,
 *     a character for each (p an address, i u I U integers of 32 and 64 bits, f d floats, b B and w W
 *     integers of 8 and 16 bits, m an address that the kernel takes as a tensor map); its extras, lines of
 *       pdl
 *         it may begin before the kernel in front of it has ended
 *       tiled TYPE SWIZZLE RANK dimensions.. strides.. box..
 *       im2col TYPE SWIZZLE RANK dimensions.. strides.. lower.. upper.. CHANNELS PIXELS steps..
 *         how the next tensor map is made, in the numbers of CUDA's driver: dimensions from the
 *         innermost on, one stride in bytes less than those, corners two less, box and steps as many
 *     the program in the language of the device (length and characters)
 * A kernel is called with its parameters, then the blocks of the grid in x, y and z, the threads of a
 * block in x, y and z, and the bytes of shared memory that the launch itself brings.
 *
 * Memory of a device has addresses that may be added to, whatever its driver calls it.
 */
#ifndef STERNA_GPU_KERNELS_H_
#define STERNA_GPU_KERNELS_H_

#include "sterna.h"

enum { GPU_MOST_PARAMETERS = 256, GPU_MOST_DEVICES = 16, GPU_MOST_MAPS = 16, GPU_MOST_RANK = 5 };

typedef struct {
  const char *source;
  size_t size;
  void *loaded[GPU_MOST_DEVICES]; /* the driver's own program for each device, or null */
} gpu_program;

/* How an array is to be seen by what copies boxes of it. */
typedef struct {
  int is_im2col;
  int32_t type, swizzle, rank;
  uint64_t dimensions[GPU_MOST_RANK], strides[GPU_MOST_RANK];
  uint32_t box[GPU_MOST_RANK], steps[GPU_MOST_RANK];
  int32_t lower[GPU_MOST_RANK], upper[GPU_MOST_RANK]; /* corners of im2col */
  uint32_t channels, pixels;
} gpu_map;

typedef struct {
  const char *name, *parameters;
  gpu_program *program;
  gpu_map *maps; /* one for each parameter m */
  int32_t map_count;
  int may_begin_early;
  void *loaded[GPU_MOST_DEVICES]; /* the driver's own kernel for each device, or null */
  void *kept;                     /* the back end's */
} gpu_kernel;

typedef struct {
  char *text; /* all names and programs, each with a zero behind it */
  gpu_program *programs;
  gpu_kernel *kernels;
  size_t program_count, kernel_count;
} gpu_module;

typedef struct {
  uint64_t values[GPU_MOST_PARAMETERS];
  uint8_t sizes[GPU_MOST_PARAMETERS]; /* in bytes */
  int32_t count;
  size_t grid[3], block[3], shared_bytes;
} gpu_launch;

/* A module from its bytes, whose kernels take parameters of these letters; null, with an error, when
   they are none. */
gpu_module *gpu_module_read(sterna_bytes bytes, const char *letters);
void gpu_module_free(gpu_module *module);
/* A module of a back end from the one argument of a call, its bytes; letters: the parameters that it takes. */
int gpu_module_load(const sterna_any *args, int32_t n, const char *letters, const sterna_module_type *type,
                    sterna_any *ret);
gpu_kernel *gpu_module_find(gpu_module *module, const char *name); /* or null */
/* The values of a call; -1, with an error, when they are not what the kernel takes. */
int gpu_launch_read(const gpu_kernel *kernel, const sterna_any *args, int32_t n, gpu_launch *out);
/* An error that names the kernel and its launch, and says what the driver said. */
int gpu_launch_error(const gpu_kernel *kernel, const gpu_launch *launch, const char *said);

#endif

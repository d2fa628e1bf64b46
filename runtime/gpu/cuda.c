/* CUDA: what the runtime calls when a device or a module of this kind is first asked for. */
#include "cuda.h"

STERNA_EXPORT int sterna_register_cuda(void);
int sterna_register_cuda(void) {
  return sterna_register_device(kDLCUDA, &cuda_api) || sterna_register_device(kDLCUDAHost, &cuda_host_api) ||
                 cuda_register_devices() || cuda_register_kernels() || cuda_register_replay()
             ? -1
             : 0;
}

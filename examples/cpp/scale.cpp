// A library of functions for Sterna hosts, as deploy.cpp loads it. In a real deployment this is the
// library that the compiler wrote for a model; the calls look the same.
#include "sterna.hpp"

using sterna::Error;
using sterna::NDArray;

namespace {

NDArray Scale(NDArray x, float factor) {
  if (x.dtype().name() != "float32" || x.device().device_type != kDLCPU)
    throw Error("TypeError", "scale takes a float32 array on the CPU, got " + x.dtype().name());
  NDArray y = NDArray::Empty(x.shape(), "float32");
  const float* from = x.data<float>();
  float* to = y.data<float>();
  const int32_t tasks = 4;
  sterna::Parallel(tasks, [&](int64_t task) {
    for (int64_t i = x.size() * task / tasks; i < x.size() * (task + 1) / tasks; i++)
      to[i] = factor * from[i];
  });
  return y;
}

}  // namespace

STERNA_EXPORT_TYPED(scale, Scale);
STERNA_EXPORT_TYPED(describe, [](NDArray x, sterna::Function report) {
  report(x.dtype().name(), x.shape());
});

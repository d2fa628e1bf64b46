// A library for check.cpp to load: functions exported in every form.
#include <numeric>
#include <stdexcept>
#include <string>

#include "sterna.hpp"

using sterna::Any;
using sterna::Args;
using sterna::Error;
using sterna::NDArray;

namespace {

int64_t Add(int64_t a, int64_t b) { return a + b; }

float Sum(const DLTensor* x) {
  const float* first = static_cast<const float*>(x->data);
  return std::accumulate(first, first + x->shape[0], 0.0f);
}

}  // namespace

STERNA_EXPORT_TYPED(add, Add);
STERNA_EXPORT_TYPED(sum, Sum);
STERNA_EXPORT_TYPED(greet, [](const std::string& who, int times) {
  std::string text;
  for (int i = 0; i < times; i++) text += "hello " + who + "\n";
  return text;
});
STERNA_EXPORT_TYPED(count, [](Args args, Any* ret) { *ret = args.size(); });
STERNA_EXPORT_TYPED(nothing, [] {});
STERNA_EXPORT_TYPED(counter, [n = 0]() mutable { return ++n; });
STERNA_EXPORT_TYPED(fail, [](std::string kind) { throw Error(kind, "raised in the library"); });
STERNA_EXPORT_TYPED(apply, [](sterna::Function f, Any x) { return f(x); });

// Taken already by check.cpp, which loads this library afterwards.
STERNA_REGISTER_GLOBAL("check.taken").set_body(Add);
STERNA_REGISTER_GLOBAL("check.from_library").set_body(Add);

STERNA_EXPORT int set_up();
STERNA_EXPORT int set_up() {
  return sterna::Guard([] { sterna::CheckRegistrations(); });
}

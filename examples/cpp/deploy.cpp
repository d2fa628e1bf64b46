/*
 * Loads a library and runs its functions from C++. From the top of the repository:
 *
 *     python runtime/amalgamate.py > sterna.c
 *     cc  -std=c11   -O2 -Iruntime -fPIC -shared sterna.c -o libsterna.so -lpthread -ldl
 *     c++ -std=c++17 -O2 -Iruntime -fPIC -shared examples/cpp/scale.cpp -o scale.so -L. -lsterna
 *     c++ -std=c++17 -O2 -Iruntime examples/cpp/deploy.cpp -o deploy -L. -lsterna -Wl,-rpath,.
 *     ./deploy ./scale.so
 */
#include <iostream>

#include "sterna.hpp"

using sterna::Error;
using sterna::Function;
using sterna::Module;
using sterna::NDArray;

// A function of this program that loaded libraries, or Python, find by its name.
STERNA_REGISTER_GLOBAL("example.report")
    .set_body([](const std::string& dtype, const std::vector<int64_t>& shape) {
      std::cout << "an array of " << dtype << " with shape";
      for (int64_t extent : shape) std::cout << ' ' << extent;
      std::cout << '\n';
    });

static void Deploy(const std::string& path) {
  Module mod = Module::LoadFromFile(path);

  NDArray x = NDArray::Empty({2, 3}, "float32");
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  x.CopyFrom(numbers, sizeof numbers);

  NDArray y = mod.GetFunction("scale")(x, 10);
  for (int64_t i = 0; i < y.size(); i++) std::cout << y.data<float>()[i] << ' ';
  std::cout << '\n';

  mod.GetFunction("describe")(y, Function::Global("example.report"));

  try {
    mod.GetFunction("scale")(x, "ten");
  } catch (const Error& error) {
    std::cout << error.kind() << ": " << error.what() << '\n';
  }
}

int main(int argc, char** argv) {
  try {
    sterna::CheckRegistrations();
    Deploy(argc > 1 ? argv[1] : "./scale.so");
  } catch (const Error& error) {
    std::cerr << error.kind() << ": " << error.what() << '\n';
    return 1;
  }
  return 0;
}

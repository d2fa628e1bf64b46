/*
 * Runs a model that the compiler wrote on numbers that count up, and prints what it gives:
 *
 *     native=$(python -c "import sterna.support.native as n; print(n.include_folder().parent)")
 *     c++ -std=c++17 run_model.cpp -I$native/include -L$native/lib -lsterna \
 *       -Wl,-rpath,$native/lib -o run_model
 *     ./run_model ./model.so
 */
#include <iostream>

#include "sterna.hpp"

using sterna::Error;
using sterna::Module;
using sterna::NDArray;

static void Run(const std::string& path) {
  Module library = Module::LoadFromFile(path);
  Module model = library.GetFunction("default")(DLDevice{kDLCPU, 0});

  NDArray like = model.GetFunction("get_input")(0);
  NDArray x = NDArray::Empty(like.shape(), "float32");
  for (int64_t i = 0; i < x.size(); i++) x.data<float>()[i] = static_cast<float>(i);
  model.GetFunction("set_input")(0, x);
  model.GetFunction("run")();

  NDArray y = model.GetFunction("get_output")(0);
  for (int64_t i = 0; i < y.size(); i++) std::cout << y.data<float>()[i] << ' ';
  std::cout << '\n';
}

int main(int argc, char** argv) {
  try {
    Run(argc > 1 ? argv[1] : "./model.so");
  } catch (const Error& error) {
    std::cerr << error.kind() << ": " << error.what() << '\n';
    return 1;
  }
  return 0;
}

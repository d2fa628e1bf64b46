// Checks sterna.hpp. Its one argument is the library made from library.cpp.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <thread>

#include "sterna.hpp"

using sterna::Any;
using sterna::Arg;
using sterna::Args;
using sterna::DType;
using sterna::Error;
using sterna::Function;
using sterna::Module;
using sterna::NDArray;

namespace {

// ---- tools ----

std::atomic<int> failures{0};

void Expect(bool truth, const char* text, int line) {
  if (truth) return;
  std::cerr << "check.cpp:" << line << ": " << text << "\n";
  failures++;
}
#define EXPECT(...) Expect((__VA_ARGS__), #__VA_ARGS__, __LINE__)

void ExpectSame(const Error& error, const char* kind, const char* message, int line) {
  if (error.kind() == kind && std::string(error.what()) == message) return;
  std::cerr << "check.cpp:" << line << ": " << error.kind() << ": " << error.what() << "\n";
  failures++;
}
// The expression throws an error of this kind and message.
#define EXPECT_ERROR(kind, message, ...)                \
  try {                                                 \
    (void)(__VA_ARGS__);                                \
    Expect(false, "must throw: " #__VA_ARGS__, __LINE__); \
  } catch (const Error& thrown_) {                      \
    ExpectSame(thrown_, kind, message, __LINE__);       \
  }

// The runtime's memory is counted from the first allocation on: this stands before anything else.
std::atomic<long> allocations{0}, blocks{0};
const int counted = [] {
  static const sterna_allocator allocator = {
      nullptr,
      [](void*, size_t bytes, size_t alignment) -> void* {
        allocations++, blocks++;
        if (alignment < 16) alignment = 16;
        return std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
      },
      [](void*, void* block) {
        blocks--;
        std::free(block);
      }};
  return sterna_set_allocator(&allocator);
}();

uint32_t Count(const void* object) {
  return static_cast<uint32_t>(static_cast<const sterna_object*>(object)->ref_counts);
}

// Counts its living copies.
struct Token {
  static std::atomic<int> alive;
  Token() { alive++; }
  Token(const Token&) { alive++; }
  Token& operator=(const Token&) = default;
  ~Token() { alive--; }
};
std::atomic<int> Token::alive{0};

constexpr DLDevice kCpu{kDLCPU, 0};
enum class Color : uint8_t { kRed = 3, kBlue = 200 };

// ---- functions registered before main ----

int Twice(int x) { return 2 * x; }
int TwiceQuietly(int x) noexcept { return 2 * x; }
void RawSum(Args args, Any* ret) {
  int64_t sum = 0;
  for (int i = 0; i < args.size(); i++) sum += args[i].as<int64_t>();
  *ret = sum;
}

STERNA_REGISTER_GLOBAL("check.twice").set_body(Twice);
STERNA_REGISTER_GLOBAL("check.typed").set_body_typed(TwiceQuietly);
STERNA_REGISTER_GLOBAL("check.sum").set_body(RawSum);
STERNA_REGISTER_GLOBAL("check.join").set_body([](std::string a, std::string b) { return a + b; });
STERNA_REGISTER_GLOBAL("check.raw").set_body([](const Args& args, Any* ret) { *ret = args[0]; });
STERNA_REGISTER_GLOBAL("check.object").set_body(Function(Twice, "an earlier name"));
STERNA_REGISTER_GLOBAL("check.taken").set_body(Twice);
STERNA_REGISTER_GLOBAL("check.replaced").set_body(Twice);
STERNA_REGISTER_GLOBAL("check.replaced").override().set_body([] { return "the second"; });
// These fail, which must not end the process.
STERNA_REGISTER_GLOBAL("check.taken").set_body(Twice);
STERNA_REGISTER_GLOBAL("").set_body(Twice);

// ---- what turns into what, as far as the compiler decides it ----

template <class T>
constexpr bool kFromAny = std::is_convertible_v<Any, T>;
static_assert(kFromAny<int64_t> && kFromAny<uint8_t> && kFromAny<bool> && kFromAny<float>);
static_assert(kFromAny<std::string> && kFromAny<NDArray> && kFromAny<Module> && kFromAny<Function>);
static_assert(kFromAny<DLDevice> && kFromAny<DLDataType> && kFromAny<std::vector<int>>);
static_assert(!kFromAny<const char*> && !kFromAny<std::string_view> && !kFromAny<DLTensor*>);
static_assert(!kFromAny<float*> && !kFromAny<std::vector<std::string_view>>);
static_assert(std::is_convertible_v<Arg, DLTensor*> && !std::is_convertible_v<Arg, const char*>);
static_assert(!std::is_constructible_v<Any, float*> && !std::is_constructible_v<Any, Error>);
static_assert(!std::is_constructible_v<Function, int> && !std::is_constructible_v<Function, Any*>);
static_assert(std::is_nothrow_move_constructible_v<Any>);
static_assert(std::is_nothrow_copy_constructible_v<Any>);
static_assert(std::is_nothrow_copy_constructible_v<Error>);

// ---- the checks ----

void CheckNumbers() {
  Function same([](Any x) { return x; });
  EXPECT(same(int8_t{-5}).as<int8_t>() == -5);
  EXPECT(same(uint8_t{250}).as<int>() == 250);
  EXPECT(same(short{-3}).as<long>() == -3);
  EXPECT(same(7u).as<unsigned long long>() == 7);
  EXPECT(same(INT64_MIN).as<int64_t>() == INT64_MIN);
  EXPECT(same(uint64_t{INT64_MAX}).as<uint64_t>() == uint64_t{INT64_MAX});
  EXPECT(same('a').as<char>() == 'a');
  EXPECT(same(true).type_index() == STERNA_BOOL && same(1).type_index() == STERNA_INT);
  EXPECT(same(true).as<int>() == 1 && same(2).as<bool>() && !same(0).as<bool>());
  EXPECT(same(1.5f).as<double>() == 1.5 && same(2.5).as<float>() == 2.5f);
  EXPECT(same(3).as<double>() == 3 && same(true).as<float>() == 1);
  EXPECT(same(Color::kBlue).as<int>() == 200 && same(3).as<Color>() == Color::kRed);
  EXPECT(same(nullptr).is_none() && same(Any()).is_none());

  int64_t a = same(1);
  int32_t b = same(2);
  uint16_t c = same(65535);
  double d = same(4.5);
  bool e = same(true);
  EXPECT(a == 1 && b == 2 && c == 65535 && d == 4.5 && e);
  a = same(6);
  EXPECT(a == 6 && same.call<int>(7) == 7 && static_cast<int>(same(8)) == 8);
  if (same(false)) Expect(false, "false must be false", __LINE__);
  same.call<void>(7);

  EXPECT_ERROR("OverflowError", "300 is out of range for int8", same(300).as<int8_t>());
  EXPECT_ERROR("OverflowError", "-1 is out of range for uint64", same(-1).as<uint64_t>());
  EXPECT_ERROR("OverflowError", "-1 is out of range for uint8", same(-1).as<uint8_t>());
  EXPECT_ERROR("OverflowError", "4294967296 is out of range for int32",
               b = same(int64_t{1} << 32));
  EXPECT_ERROR("OverflowError", "256 is out of range for uint8", same(256).as<Color>());
  EXPECT_ERROR("OverflowError", "18446744073709551615 is out of range for int64", same(UINT64_MAX));
  EXPECT_ERROR("TypeError", "expected int, got float", same(1.0).as<int>());
  EXPECT_ERROR("TypeError", "expected int, got text", a = same("1"));
  EXPECT_ERROR("TypeError", "expected float, got none", d = same(nullptr));
  EXPECT_ERROR("TypeError", "expected bool, got float", e = same(1.0));
  EXPECT_ERROR("TypeError", "expected text, got int", same(1).as<std::string>());
  EXPECT_ERROR("TypeError", "expected an array, got int", same(1).as<NDArray>());
  EXPECT_ERROR("TypeError", "expected a module, got int", same(1).as<Module>());
  EXPECT_ERROR("TypeError", "expected a function, got int", same(1).as<Function>());
}

void CheckText() {
  Function same([](Any x) { return x; });
  const std::string longer = "longer than seven bytes", zeros("nul\0inside and longer", 21);
  char buffer[] = "buffer";
  EXPECT(same("text").as<std::string>() == "text" && same("").as<std::string>().empty());
  EXPECT(same(longer).as<std::string>() == longer && same(zeros).as<std::string>() == zeros);
  EXPECT(same(std::string_view(longer).substr(0, 10)).as<std::string>() == "longer tha");
  EXPECT(same(std::string_view("ab\0", 3)).as<std::string>() == std::string("ab\0", 3));
  EXPECT(same(std::string_view()).as<std::string>().empty());
  EXPECT(same(std::string()).as<std::string>().empty());
  EXPECT(same(buffer).as<std::string>() == "buffer");
  EXPECT(same(static_cast<const char*>(nullptr)).is_none());

  std::string made = same("made"), assigned;
  assigned = same("assigned");
  EXPECT(made == "made" && assigned == "assigned" && std::string(same("direct")) == "direct");
  const Any kept = longer;
  EXPECT(kept.as<std::string_view>() == longer && kept.as<const char*>() == longer);
  EXPECT(Any("seven!!").as<std::string>() == "seven!!");

  Function length([](std::string_view s) { return s.size(); });
  Function first([](const char* s) { return *s; });
  EXPECT(length(zeros).as<size_t>() == 21 && length("abc").as<int>() == 3);
  EXPECT(first("xyz").as<char>() == 'x' && first(Any("xyz")).as<char>() == 'x');

  const sterna_bytes data{"\0\1\2", 3};
  const Any bytes = same(data);
  EXPECT(bytes.type_index() == STERNA_SMALL_BYTES && bytes.as<sterna_bytes>().size == 3);
  EXPECT(bytes.as<sterna_bytes>().data[2] == 2);
  EXPECT_ERROR("TypeError", "expected text, got bytes", same(data).as<std::string>());
}

void CheckOtherValues() {
  Function same([](Any x) { return x; });
  DLDevice device = same(DLDevice{kDLCUDA, 3});
  EXPECT(device.device_type == kDLCUDA && device.device_id == 3);
  DLDataType dtype = same(DType("float16x4"));
  EXPECT(dtype.code == kDLFloat && dtype.bits == 16 && dtype.lanes == 4);
  DType by_name = same("int8");
  EXPECT(by_name.name() == "int8" && same(dtype).as<DType>().name() == "float16x4");
  EXPECT(same(static_cast<void*>(&device)).as<void*>() == &device);
  EXPECT(same(nullptr).as<void*>() == nullptr && same(static_cast<void*>(nullptr)).is_none());
  EXPECT_ERROR("TypeError", "expected a pointer, got int", same(1).as<void*>());

  std::vector<int> numbers = same(std::vector<int>{1, 2, 3});
  EXPECT(numbers == std::vector<int>{1, 2, 3});
  numbers = same(std::vector<int>{4});
  EXPECT(numbers == std::vector<int>{4});
  std::vector<std::vector<std::string>> nested = {{"a", "a longer piece of text"}, {}, {"c"}};
  EXPECT(same(nested).as<std::vector<std::vector<std::string>>>() == nested);
  const std::vector<bool> bits = {true, false};
  EXPECT(same(bits).as<std::vector<bool>>() == bits);
  std::vector<Any> mixed = same(std::vector<Any>{1, "two", 3.0, NDArray::Empty({2}, "float32")});
  EXPECT(mixed.size() == 4 && mixed[1].as<std::string>() == "two");
  EXPECT(mixed[3].as<NDArray>().size() == 2);
  EXPECT(same(std::vector<int>()).as<std::vector<int>>().empty());
  EXPECT_ERROR("TypeError", "item 1: expected int, got text",
               same(std::vector<Any>{1, "x"}).as<std::vector<int>>());
  EXPECT_ERROR("OverflowError", "item 0: 300 is out of range for uint8",
               same(std::vector<int>{300}).as<std::vector<uint8_t>>());
  EXPECT_ERROR("TypeError", "expected a list, got int", same(1).as<std::vector<int>>());
  sterna_any shape;
  const int64_t dims[] = {4, 5};
  sterna::Check(sterna_shape(dims, 2, &shape));
  EXPECT(Any(shape).as<std::vector<int64_t>>() == std::vector<int64_t>{4, 5});

  EXPECT(same(std::optional<int>(5)).as<int>() == 5 && same(std::optional<int>()).is_none());
  EXPECT(same(5).as<std::optional<int>>() == 5 && !same(nullptr).as<std::optional<int>>());

  Function null_function;
  EXPECT(!null_function && same(null_function).is_none() && same(NDArray()).is_none());
  EXPECT(same(Module()).is_none());
  EXPECT_ERROR("ValueError", "the Function is empty", null_function(1));
}

void CheckCounting() {
  NDArray x = NDArray::Empty({3}, "float32");
  EXPECT(Count(x.get()) == 1);
  {
    NDArray copy = x, moved = std::move(copy);
    EXPECT(Count(x.get()) == 2 && !copy && moved.get() == x.get());
    NDArray& itself = moved;
    moved = itself;
    EXPECT(Count(x.get()) == 2);
    copy = std::move(moved);
    EXPECT(Count(x.get()) == 2 && copy);
    Any a = x, b = a, c = std::move(a);
    EXPECT(Count(x.get()) == 4 && a.is_none() && !c.is_none());
    b = 1;
    Any& same = c;
    c = same;
    EXPECT(Count(x.get()) == 3);
    a = c;
    std::swap(a, b);
    EXPECT(Count(x.get()) == 4 && a.as<int>() == 1);
    NDArray out = b;
    EXPECT(Count(x.get()) == 5 && out.get() == x.get());
    sterna_any raw = b.release();
    EXPECT(b.is_none() && Count(x.get()) == 5);
    b = Any(raw);
  }
  EXPECT(Count(x.get()) == 1);

  Function count([&](Args args, Any* ret) { *ret = Count(args[0].view().v_obj); });
  EXPECT(count(x).as<int>() == 1);
  Function keep([](NDArray y) { return y; });
  EXPECT(keep(x).as<NDArray>().get() == x.get());
  EXPECT(Count(x.get()) == 1);

  {
    Function f([token = Token()](int) {});
    EXPECT(Token::alive == 1);
    Function g = f;
    f = Function();
    EXPECT(Token::alive == 1);
    g(1);
  }
  EXPECT(Token::alive == 0);
  Function call([](Function f) { return f(); });
  EXPECT(call([token = Token()] { return 5; }).as<int>() == 5);
  EXPECT(Token::alive == 0);
  auto unique = [p = std::make_unique<int>(6)] { return *p; };
  EXPECT(Function(std::move(unique))().as<int>() == 6);

  // An object that the caller moves in arrives like any other.
  sterna_object* moved = reinterpret_cast<sterna_object*>(NDArray(x).release());
  sterna_any view = sterna_any_none();
  view.type_index = STERNA_MOVED_OBJECT;
  view.v_ptr = &moved;
  EXPECT(keep.CallPacked(Args(&view, 1)).as<NDArray>().get() == x.get());
  sterna_release(moved);
  EXPECT(Count(x.get()) == 1);
}

void CheckAllocation() {
  Function raw([](Args, Any*) {}), typed([](int, double, std::string_view, DLTensor*, Any) {});
  NDArray x = NDArray::Empty({3}, "float32");
  const std::string text = "text that is longer than seven bytes";
  const Any value = text;
  const long before = allocations;
  raw(1, 2.0, true, nullptr, "a C string of some length", text, kCpu, DType("int8"), x, raw, value);
  raw(x.tensor(), std::string_view("7 bytes"));
  typed(1, 2.0, text, x, value);
  EXPECT(allocations == before);
  raw(std::string_view(text));
  EXPECT(allocations == before + 1);
}

int Plain(const std::string& text, NDArray&& array, const std::vector<int>& numbers) {
  return static_cast<int>(text.size() + numbers.size()) + array.ndim();
}

void CheckFunctions() {
  NDArray x = NDArray::Empty({1, 2}, "int8");
  EXPECT(Function(Plain)("abc", x, std::vector<int>{1, 2}).as<int>() == 7);
  EXPECT(Function(&Plain)("abc", x, std::vector<int>{}).as<int>() == 5);
  EXPECT(Function(std::function<int(int)>(Twice))(4).as<int>() == 8);
  EXPECT(Function(TwiceQuietly)(4).as<int>() == 8 && Function(RawSum)(1, 2, 3).as<int>() == 6);
  EXPECT(Function([n = 0]() mutable { return ++n; })().as<int>() == 1);
  EXPECT(Function([](DLTensor* t) { return t->ndim; })(x).as<int>() == 2);
  EXPECT(Function([](const DLTensor* t) { return t->ndim; })(x.tensor()).as<int>() == 2);
  EXPECT(Function([](std::optional<int> n) { return n.value_or(9); })(nullptr).as<int>() == 9);
  Function view([](std::string s) -> std::string_view { return s.size() ? "yes, text" : ""; });
  EXPECT(view("a").as<std::string>() == "yes, text");
  Function compose([](Function f, Function g) {
    return Function([f, g](Any v) { return f(g(v)); });
  });
  Function four = compose(Twice, [](int v) { return Twice(v); });
  EXPECT(four(3).as<int>() == 12);
  EXPECT(compose(Twice, Twice).as<Function>()(1).as<int>() == 4);

  Function raw([](Args args, Any* ret) {
    DLTensor* tensor = args[0];
    std::string text = args[1];
    const int number = args[2];
    EXPECT(args.size() == 4 && args[3].is_none() && args[2].type_index() == STERNA_INT);
    Any kept = args[1];
    text = args[1];
    *ret = std::vector<Any>{tensor->ndim, text + "!", number, kept, args[0].as<NDArray>()};
  });
  std::vector<Any> results = raw(x, "some longer text", 5, nullptr);
  EXPECT(results.size() == 5 && results[1].as<std::string>() == "some longer text!");
  EXPECT(results[3].as<std::string>() == "some longer text" && results[0].as<int>() == 2);
  Function forward([&](Args args, Any* ret) { *ret = Function(RawSum)(args[0], 10, args[1]); });
  EXPECT(forward(1, 2).as<int>() == 13);
  Function pass([&](Args args, Any* ret) { *ret = Function(RawSum).CallPacked(args); });
  EXPECT(pass(1, 2, 3, 4).as<int>() == 10);

  EXPECT_ERROR("TypeError", "argument 5 is missing, got 4", Function([](Args args, Any* ret) {
                 *ret = args[4];
               })(1, 2, 3, 4));
  EXPECT_ERROR("TypeError", "argument 1: expected an array, got text", raw("x", "y", 1, nullptr));
  EXPECT_ERROR("TypeError", "the function takes 1 argument, got 0", Function(Twice)());
  EXPECT_ERROR("TypeError", "argument 1: expected int, got text", Function(Twice)("x"));
  EXPECT_ERROR("OverflowError", "argument 1: 4294967296 is out of range for int32",
               Function(Twice)(int64_t{1} << 32));
  EXPECT_ERROR("TypeError", "argument 1 of 'f': expected int, got float",
               Function(Twice, "f")(1.5));
  EXPECT_ERROR("TypeError", "argument 2: expected text, got none",
               Function([](int, std::string) {})(1, nullptr));
  EXPECT_ERROR("TypeError", "argument 1: expected int, got text",
               Function([](int, int) {})("first", "second"));
  EXPECT_ERROR("TypeError",
               "argument 1: expected an array, got a bare DLTensor, which cannot be kept",
               Function([](NDArray) {})(x.tensor()));
  EXPECT_ERROR("TypeError", "argument 1: item 1: expected int, got text",
               Function([](std::vector<int>) {})(std::vector<Any>{1, "x"}));
  bool thrown = false;
  try {
    Function([](Any y) { return y; })(x.tensor());
  } catch (const Error& error) {
    thrown = error.kind() == "TypeError";
  }
  EXPECT(thrown);
}

void CheckRegistry() {
  EXPECT(Function::Global("check.twice")(21).as<int>() == 42);
  EXPECT(Function::Global("check.typed")(21).as<int>() == 42);
  EXPECT(Function::Global("check.object")(21).as<int>() == 42);
  EXPECT(Function::Global("check.sum")(1, 2, 3).as<int>() == 6);
  EXPECT(Function::Global("check.join")("a", "b").as<std::string>() == "ab");
  EXPECT(Function::Global("check.raw")(2.5).as<double>() == 2.5);
  EXPECT(Function::Global("check.replaced")().as<std::string>() == "the second");
  EXPECT(!Function::GlobalOrNull("check.missing") && Function::GlobalOrNull("check.twice"));
  EXPECT_ERROR("ValueError", "no function named 'check.missing' is registered",
               Function::Global("check.missing"));
  EXPECT_ERROR("TypeError", "'check.twice' takes 1 argument, got 2",
               Function::Global("check.twice")(1, 2));
  EXPECT_ERROR("TypeError", "'check.join' takes 2 arguments, got 0",
               Function::Global("check.join")());
  EXPECT_ERROR("TypeError", "argument 1 of 'check.twice': expected int, got text",
               Function::Global("check.twice")("x"));
  EXPECT_ERROR("TypeError", "argument 2 of 'check.sum': expected int, got text",
               Function::Global("check.sum")(1, "x"));

  Function::Register("check.later", [token = Token()] { return 1; });
  EXPECT_ERROR("ValueError",
               "a function named 'check.later' is already registered; pass override to replace it",
               (Function::Register("check.later", [token = Token()] { return 2; }), 0));
  EXPECT(Token::alive == 1 && Function::Global("check.later")().as<int>() == 1);
  Function::Register("check.later", [] { return 3; }, true);
  EXPECT(Token::alive == 0 && Function::Global("check.later")().as<int>() == 3);
  bool listed = false;
  for (const std::string& name : Function::GlobalNames()) listed = listed || name == "check.later";
  EXPECT(listed);
  Function::Remove("check.later");
  EXPECT(!Function::GlobalOrNull("check.later"));

  for (int i = 0; i < 2; i++) try { // it says so every time
      sterna::CheckRegistrations();
      Expect(false, "CheckRegistrations must throw", __LINE__);
    } catch (const Error& error) {
      EXPECT(error.kind() == "ValueError" && error.cause().has_value());
      EXPECT(error.what() ==
             std::string("2 functions could not be registered\n"
                         "  a function named 'check.taken' is already registered; pass override to "
                         "replace it\n"
                         "  a function needs a name"));
    }
}

template <class E>
Function Thrower(const E& exception) {
  return Function([exception](Args, Any*) { throw exception; });
}

void CheckErrors() {
  EXPECT_ERROR("ValueError", "m", Thrower(std::invalid_argument("m"))());
  EXPECT_ERROR("ValueError", "m", Thrower(std::domain_error("m"))());
  EXPECT_ERROR("IndexError", "m", Thrower(std::out_of_range("m"))());
  EXPECT_ERROR("RuntimeError", "m", Thrower(std::length_error("m"))());
  EXPECT_ERROR("RuntimeError", "m", Thrower(std::runtime_error("m"))());
  EXPECT_ERROR("MemoryError", std::bad_alloc().what(), Thrower(std::bad_alloc())());
  EXPECT_ERROR("RuntimeError", "an exception of unknown type was thrown", Thrower(42)());
  EXPECT_ERROR("MyError", "m", Thrower(Error("MyError", "m"))());

  // One error object all the way through C, with its cause and its context.
  const Any context = std::vector<int>{1, 2};
  const Error cause("KeyError", "the first");
  sterna_object* kept = context.view().v_obj;
  sterna_error* made = nullptr;
  sterna::Check(sterna_error_create("MyError", "the second", cause.get(), kept, &made));
  const Error error{sterna::Ref<sterna_error>(made)};
  Function thrower = Thrower(error), outer([&] { return thrower(); });
  try {
    outer();
    Expect(false, "outer must throw", __LINE__);
  } catch (const Error& caught) {
    EXPECT(caught.get() == error.get() && caught.get()->context == kept);
    EXPECT(caught.kind() == "MyError" && std::string(caught.what()) == "the second");
    EXPECT(caught.cause() && caught.cause()->get() == cause.get());
    EXPECT(caught.cause()->kind() == "KeyError" && !caught.cause()->cause());
  }
  EXPECT(Error("A", "a", cause).cause()->get() == cause.get());
  EXPECT(std::string(sterna_last_error()).empty()); // nothing is left behind in the thread

  // Through C functions on the way, which may wrap it.
  static sterna_function* inner;
  inner = thrower.get();
  sterna_function* wrapper = nullptr;
  sterna::Check(sterna_function_create(
      [](void*, const sterna_any*, int32_t, sterna_any* ret) -> int {
        if (sterna_function_call(inner, nullptr, 0, ret) == 0) return 0;
        return sterna_wrap_error("OuterError", "wrapped");
      },
      nullptr, nullptr, &wrapper));
  try {
    Function{wrapper}();
    Expect(false, "the wrapper must fail", __LINE__);
  } catch (const std::runtime_error& caught) {
    const auto* wrapped = dynamic_cast<const Error*>(&caught);
    EXPECT(wrapped && wrapped->kind() == "OuterError" && wrapped->cause()->get() == error.get());
  }
  sterna_function* mute = nullptr;
  sterna::Check(sterna_function_create(
      [](void*, const sterna_any*, int32_t, sterna_any*) { return -1; }, nullptr, nullptr, &mute));
  EXPECT_ERROR("RuntimeError", "a call failed without saying why", Function(mute)());

  EXPECT(sterna::Guard([] {}) == 0);
  EXPECT(sterna::Guard([] { throw std::out_of_range("far"); }) == -1);
  EXPECT(std::string(sterna_last_error_kind()) == "IndexError");
  EXPECT(std::string(Error::Last().what()) == "far");
  Error copy = cause, assigned = error;
  assigned = copy;
  EXPECT(assigned.get() == cause.get() && std::string(assigned.what()) == "the first");
}

void CheckArrays() {
  NDArray x = NDArray::Empty({2, 3}, "float32");
  EXPECT(x.ndim() == 2 && x.size() == 6 && x.bytes() == 24 && x->ndim == 2 && !x.read_only());
  EXPECT(x.shape() == std::vector<int64_t>{2, 3} && x.dtype().name() == "float32");
  EXPECT(x.device().device_type == kDLCPU && x.device().device_id == 0);
  std::array<float, 6> numbers = {1, 2, 3, 4, 5, 6}, back{};
  x.CopyFrom(numbers.data(), sizeof numbers);
  EXPECT(x.data<float>()[5] == 6 && *x.data<const float>() == 1 && x.data<void>() == x->data);
  x.CopyTo(back.data(), sizeof back);
  EXPECT(back == numbers);

  const std::vector<int64_t> shape = {6};
  NDArray y = NDArray::Empty(shape, DLDataType{kDLFloat, 32, 1}, kCpu);
  y.CopyFrom(x);
  EXPECT(y.data<float>()[4] == 5);
  y.data<float>()[4] = 50;
  y.CopyTo(x);
  EXPECT(x.data<float>()[4] == 50);
  x.CopyFrom(y.tensor());
  y.CopyTo(x.tensor());
  NDArray copy = x.CopyTo(kCpu);
  EXPECT(copy->data != x->data && copy.shape() == x.shape() && copy.data<float>()[4] == 50);

  NDArray row = x.View({3}, "float32", 12), flat = x.View({6});
  EXPECT(row.data<float>() == x.data<float>() + 3 && flat.size() == 6 && Count(x.get()) == 3);
  EXPECT(x.View({24}, std::string("uint8")).data<uint8_t>() == x.data<uint8_t>());
  EXPECT_ERROR("ValueError", "a view of 28 bytes at offset 0 does not fit in an array of 24 bytes",
               x.View({7}));

  NDArray scalar = NDArray::Empty({}, "int64"), none = NDArray::Empty({0, 5}, "int64");
  EXPECT(scalar.ndim() == 0 && scalar.size() == 1 && scalar.shape().empty());
  *scalar.data<int64_t>() = 7;
  EXPECT(none.size() == 0 && none.bytes() == 0);
  none.CopyFrom(none.CopyTo(kCpu));
  EXPECT(NDArray::Empty({4}, "float32x4").data<float>() != nullptr);

  EXPECT_ERROR("TypeError", "elements of float32 do not have 8 bytes", x.data<double>());
  EXPECT_ERROR("ValueError", "20 bytes were given for an array of 24 bytes",
               (x.CopyFrom(numbers.data(), 20), 0));
  EXPECT_ERROR("ValueError", "the NDArray is empty", NDArray().shape());
  EXPECT_ERROR("ValueError", "dimension 0 of the array is negative: -1",
               NDArray::Empty({-1}, "int8"));
  EXPECT_ERROR("RuntimeError", "no runtime support for device cuda(0) is loaded",
               NDArray::Empty({1}, "int8", DLDevice{kDLCUDA, 0}));

  {
    NDArray in = NDArray::FromDLPack(x.ToDLPack());
    NDArray again = NDArray::FromDLPack(in.ToDLPackVersioned());
    EXPECT(again->data == x->data && again.shape() == x.shape() && in.get() != x.get());
  }
  DLManagedTensorVersioned* managed = x.ToDLPackVersioned();
  managed->flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
  NDArray frozen = NDArray::FromDLPack(managed);
  EXPECT(frozen.read_only());
  EXPECT_ERROR("BufferError", "the array is read-only", (frozen.CopyFrom(x), 0));
  EXPECT_ERROR("BufferError", "the array is read-only, which only versioned DLPack can say",
               frozen.ToDLPack());
  frozen.CopyTo(y);
  DLManagedTensorVersioned* refused = x.ToDLPackVersioned();
  refused->version.major = 99;
  EXPECT_ERROR("ValueError", "the array comes as DLPack 99.1; version 1 is understood",
               NDArray::FromDLPack(refused));
  refused->deleter(refused); // still ours
}

STERNA_EXPORT_TYPED(own_add, [](int a, int b) { return a + b; });

void CheckModules(const std::string& path) {
  Module library = Module::LoadFromFile(path);
  EXPECT(library.kind() == "library" && library.HasFunction("add") && !library.HasFunction("none"));
  EXPECT(library.GetFunction("add")(2, 3).as<int>() == 5);
  NDArray x = NDArray::Empty({3}, "float32");
  for (int i = 0; i < 3; i++) x.data<float>()[i] = static_cast<float>(i);
  EXPECT(library.GetFunction("sum")(x).as<double>() == 3);
  EXPECT(library.GetFunction("sum")(x.tensor()).as<double>() == 3);
  std::string text = library.GetFunction("greet")("you", 2);
  EXPECT(text == "hello you\nhello you\n");
  EXPECT(library.GetFunction("count")(1, "2", 3.0).as<int>() == 3);
  EXPECT(library.GetFunction("nothing")().is_none());
  EXPECT(library.GetFunction("counter")().as<int>() == 1);
  EXPECT(library.GetFunction("counter")().as<int>() == 2);
  EXPECT(library.GetFunction("apply")([](int v) { return v + 1; }, 4).as<int>() == 5);
  EXPECT_ERROR("AttributeError", "Module has no function 'none'", library.GetFunction("none"));
  EXPECT_ERROR("TypeError", "argument 2 of 'add': expected int, got none",
               library.GetFunction("add")(1, nullptr));
  EXPECT_ERROR("TypeError", "'add' takes 2 arguments, got 1", library.GetFunction("add")(1));
  EXPECT_ERROR("KeyError", "raised in the library", library.GetFunction("fail")("KeyError"));
  EXPECT(Function::Global("check.from_library")(1, 2).as<int>() == 3);
  EXPECT_ERROR("ValueError",
               "a function named 'check.taken' is already registered; pass override to replace it",
               (sterna::Check(sterna_load_extension(path.c_str(), "set_up")), 0));

  bool refused = false;
  try {
    Module::LoadFromFile("/no/such/file.so");
  } catch (const Error&) {
    refused = true;
  }
  EXPECT(refused);

  sterna::Check(sterna_register_system_symbol("__tvm_ffi_own_add",
                                              reinterpret_cast<void*>(&__tvm_ffi_own_add)));
  Module system = Module::SystemLib("own_");
  EXPECT(system.kind() == "system" && system.GetFunction("add")(1, 2).as<int>() == 3);
  EXPECT(Module::SystemLib().GetFunction("own_add")(1, 2).as<int>() == 3);
  EXPECT(!system.HasFunction("greet", true));
  system.Import(library);
  EXPECT(system.HasFunction("greet", true) && !system.HasFunction("greet"));
  EXPECT(system.GetFunction("count", true)().as<int>() == 0);
  EXPECT(system.imports().size() == 1 && system.imports()[0].get() == library.get());
  EXPECT_ERROR("ValueError", "a module cannot import itself, not even by way of others",
               (library.Import(system), 0));
  EXPECT_ERROR("ValueError", "the Module is empty", Module().kind());

  Function same([](Module m) { return m; });
  Module returned = same(system);
  EXPECT(returned.get() == system.get());
  Function kept = library.GetFunction("add");
  library = Module();
  system = returned = Module();
  EXPECT(kept(1, 1).as<int>() == 2); // a function keeps its module
}

void Square(int task) { (void)(task * task); }

void CheckThreads() {
  std::array<std::atomic<int>, 100> done{};
  sterna::Parallel(100, [&](int task) { done[static_cast<size_t>(task)]++; });
  sterna::Parallel(100, [&](int task, int tasks) { done[static_cast<size_t>(task)] += tasks; });
  for (const auto& times : done) EXPECT(times == 101);
  sterna::Parallel(4, Square);
  sterna::Parallel(0, [](int) { Expect(false, "no task must run", __LINE__); });
  const auto constant = [](int) {};
  sterna::Parallel(2, constant);

  const Error error("MyError", "in a task");
  try {
    sterna::Parallel(50, [&](int task) {
      if (task == 30) throw error;
    });
    Expect(false, "Parallel must throw", __LINE__);
  } catch (const Error& caught) {
    EXPECT(caught.get() == error.get());
  }
  EXPECT_ERROR("IndexError", "far",
               (sterna::Parallel(8, [](int) { throw std::out_of_range("far"); }), 0));

  NDArray shared = NDArray::Empty({1}, "int32");
  Function f([shared, token = Token()](NDArray x, std::string s) {
    if (s == "fail") throw std::invalid_argument(s + " on purpose");
    return std::vector<Any>{x, shared, s};
  });
  std::vector<std::thread> threads;
  std::atomic<int> caught{0};
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&, t] {
      const std::string name = "check.thread" + std::to_string(t);
      for (int i = 0; i < 300; i++) {
        std::vector<Any> parts = f(shared, "some text to be copied");
        EXPECT(parts.size() == 3 && parts[0].as<NDArray>().get() == shared.get());
        Function::Register(name, f);
        Function::Global(name)(shared, "");
        Function::Remove(name);
        try {
          f(shared, "fail");
        } catch (const Error& e) {
          if (e.kind() == "ValueError") caught++;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT(caught == 1200 && Count(shared.get()) == 2);
  f = Function();
  EXPECT(Count(shared.get()) == 1 && Token::alive == 0);
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(counted == 0 && argc == 2);
  CheckNumbers();
  CheckText();
  CheckOtherValues();
  CheckCounting();
  CheckAllocation();
  CheckFunctions();
  CheckRegistry();
  CheckErrors();
  CheckArrays();
  if (argc == 2) CheckModules(argv[1]);
  CheckThreads();
  sterna_shutdown();
  EXPECT(blocks == 3); // all but the failed registrations: two here, one in the library
  std::cout << (failures ? "failed\n" : "all is well\n");
  return failures ? 1 : 0;
}

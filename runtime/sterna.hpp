/*
 * sterna.hpp - the Sterna runtime for C++17: modules, functions, arrays and errors with value
 * semantics. It is one header over sterna.h; link the runtime as for C.
 *
 *     #include "sterna.hpp"
 *     using namespace sterna;
 *
 *     Module mod = Module::LoadFromFile("model.so");
 *     NDArray x = NDArray::Empty({1, 3, 224, 224}, "float32");
 *     x.CopyFrom(pixels, pixel_bytes);
 *     NDArray y = mod.GetFunction("main")(x);           // throws sterna::Error when it fails
 *     const float* scores = y.data<float>();
 *
 * and the other way round, C++ functions for every other language to call:
 *
 *     double Mean(NDArray x, std::optional<double> weight);
 *     STERNA_REGISTER_GLOBAL("my.mean").set_body(Mean);     // in the process's registry
 *     STERNA_EXPORT_TYPED(mean, Mean)                       // as a symbol of this library
 *
 * What the pieces promise
 *   Module, Function, NDArray   share one counted object each; a copy is another reference. They may
 *                               be empty: test with "if (f)". Empty ones are passed as none.
 *   Any                         owns one value of any kind. It turns into the type it is assigned to
 *                               or into T by as<T>(); another kind is a TypeError, an integer too
 *                               large for T an OverflowError. Text, pointers to tensors and other
 *                               types that borrow need as<T>() on an Any that stays in place.
 *   calling                     borrows the arguments. Nothing is allocated for numbers, objects,
 *                               C strings and std::string; std::string_view is copied beyond seven
 *                               bytes, std::vector becomes a list, a lambda becomes a Function.
 *   Error                       every failure, with its kind, message and cause. An exception that
 *                               leaves a C++ function called from elsewhere arrives there as an
 *                               error, and a sterna::Error as the very same one.
 *   threads                     all of it may be used from all threads; one object of these classes
 *                               may be read, not changed, by several at once. A function's body
 *                               runs in whichever thread calls it, possibly in several at once.
 *
 * To pass a type of your own, specialize sterna::Traits for it; section 5 shows how.
 */
#ifndef STERNA_HPP_
#define STERNA_HPP_

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sterna.h"

namespace sterna {

/* ---- 1  References -------------------------------------------------------------------------- */

/* Holds one reference to a counted object, or nothing. */
template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  explicit Ref(T* owned) noexcept : object_(owned) {} /* takes the caller's reference over */
  Ref(const Ref& other) noexcept : object_(other.object_) { sterna_retain(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { sterna_release(object_); }

  explicit operator bool() const noexcept { return object_ != nullptr; }
  T* get() const noexcept { return object_; }                              /* borrowed */
  T* release() noexcept { return std::exchange(object_, nullptr); }        /* now the caller's */

 private:
  T* object_ = nullptr;
};

namespace detail {
template <class R, class T>
R Share(T* borrowed) {
  sterna_retain(borrowed);
  return R(borrowed);
}
}  // namespace detail

/* ---- 2  Errors ------------------------------------------------------------------------------ */

class Error : public std::runtime_error {
 public:
  Error(const std::string& kind, const std::string& message)
      : Error(Make(kind, message, nullptr)) {}
  Error(const std::string& kind, const std::string& message, const Error& cause)
      : Error(Make(kind, message, cause.get())) {}
  explicit Error(Ref<sterna_error> error)
      : std::runtime_error(Text(error.get()->message)), error_(std::move(error)) {}

  /* The name of an exception class: "TypeError", "ValueError", ... what() is the message. */
  std::string kind() const { return Text(error_.get()->kind); }
  /* The error that led to this one. */
  std::optional<Error> cause() const {
    sterna_object* before = error_.get()->cause;
    if (!before || before->type_index != STERNA_ERROR) return std::nullopt;
    auto* error = reinterpret_cast<sterna_error*>(before);
    return Error(detail::Share<Ref<sterna_error>>(error));
  }
  sterna_error* get() const noexcept { return error_.get(); } /* borrowed */

  /* This thread's error, which is taken out of the thread. */
  static Error Last() {
    Ref<sterna_error> error(sterna_take_error());
    if (error) return Error(std::move(error));
    return Error("RuntimeError", "a call failed without saying why");
  }

 private:
  static std::string Text(sterna_bytes text) { return std::string(text.data, text.size); }
  static Ref<sterna_error> Make(const std::string& kind, const std::string& message,
                                sterna_error* cause) {
    sterna_error* error = nullptr;
    if (sterna_error_create(kind.c_str(), message.c_str(), cause, nullptr, &error))
      error = sterna_take_error();
    if (!error) throw std::bad_alloc();
    return Ref<sterna_error>(error);
  }

  Ref<sterna_error> error_;
};

/* For calls of the C interface: throws this thread's error unless code is 0. */
inline void Check(int code) {
  if (code != 0) throw Error::Last();
}

/* For functions that C calls: runs body, and turns an exception into this thread's error and -1. */
template <class Body>
int Guard(Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (const Error& error) {
    return sterna_raise(error.get());
  } catch (const std::invalid_argument& error) {
    return sterna_set_error("ValueError", error.what());
  } catch (const std::domain_error& error) {
    return sterna_set_error("ValueError", error.what());
  } catch (const std::out_of_range& error) {
    return sterna_set_error("IndexError", error.what());
  } catch (const std::bad_alloc& error) {
    return sterna_set_error("MemoryError", error.what());
  } catch (const std::exception& error) {
    return sterna_set_error("RuntimeError", error.what());
  } catch (...) {
    return sterna_set_error("RuntimeError", "an exception of unknown type was thrown");
  }
}

/* ---- 3  Arrays ------------------------------------------------------------------------------ */

/* A data type, also by its name: "float32", "int8x4", ... */
class DType {
 public:
  DType(DLDataType dtype) noexcept : dtype_(dtype) {}
  DType(std::string_view name) { Check(sterna_dtype_parse(name.data(), name.size(), &dtype_)); }
  DType(const char* name) : DType(std::string_view(name)) {}
  DType(const std::string& name) : DType(std::string_view(name)) {}
  operator DLDataType() const noexcept { return dtype_; }
  std::string name() const {
    char buffer[32];
    sterna_dtype_name(dtype_, buffer);
    return buffer;
  }

 private:
  DLDataType dtype_{};
};

class NDArray : public Ref<sterna_ndarray> {
 public:
  using Ref::Ref;
  using Shape = std::vector<int64_t>;

  static NDArray Empty(const Shape& shape, DType dtype, DLDevice device = {kDLCPU, 0}) {
    sterna_ndarray* made = nullptr;
    Check(sterna_ndarray_empty(shape.data(), Dims(shape), dtype, device, &made));
    return NDArray(made);
  }
  /* Takes the structure over when it works; when it throws, the structure is still the caller's. */
  static NDArray FromDLPack(DLManagedTensor* from) {
    sterna_ndarray* made = nullptr;
    Check(sterna_ndarray_from_dlpack(from, &made));
    return NDArray(made);
  }
  static NDArray FromDLPack(DLManagedTensorVersioned* from) {
    sterna_ndarray* made = nullptr;
    Check(sterna_ndarray_from_dlpack_versioned(from, &made));
    return NDArray(made);
  }
  /* Share the memory; whoever receives the structure calls its deleter. */
  DLManagedTensor* ToDLPack() const {
    DLManagedTensor* out = nullptr;
    Check(sterna_ndarray_to_dlpack(array(), &out));
    return out;
  }
  DLManagedTensorVersioned* ToDLPackVersioned() const {
    DLManagedTensorVersioned* out = nullptr;
    Check(sterna_ndarray_to_dlpack_versioned(array(), &out));
    return out;
  }

  DLTensor* operator->() const { return &array()->tensor; }
  DLTensor& operator*() const { return array()->tensor; }

  int ndim() const { return array()->tensor.ndim; }
  Shape shape() const {
    const DLTensor& t = **this;
    return Shape(t.shape, t.shape + t.ndim);
  }
  int64_t size() const { /* the number of elements */
    int64_t count = 1;
    for (int64_t extent : shape()) count *= extent;
    return count;
  }
  size_t bytes() const {
    size_t count = 0;
    Check(sterna_tensor_bytes(&**this, &count));
    return count;
  }
  DType dtype() const { return array()->tensor.dtype; }
  DLDevice device() const { return array()->tensor.device; }
  bool read_only() const { return sterna_ndarray_is_read_only(array()) != 0; }

  /* The first element. T has the size of an element, or is a byte or void; the numbers are only
     there to be read when the device is the CPU. */
  template <class T>
  T* data() const {
    const DLTensor& t = **this;
    if constexpr (!std::is_void_v<T>) {
      const size_t lanes = t.dtype.lanes;
      if (sizeof(T) != 1 && sizeof(T) * 8 != t.dtype.bits && sizeof(T) * 8 != t.dtype.bits * lanes)
        throw Error("TypeError", "an array of " + dtype().name() + " cannot be read in elements of " +
                                     std::to_string(sizeof(T)) + " bytes");
    }
    return reinterpret_cast<T*>(static_cast<char*>(t.data) + t.byte_offset);
  }

  /* Copies need equal numbers of bytes on both sides; the devices may differ. */
  void CopyFrom(const DLTensor* from) const { Check(sterna_tensor_copy(from, writable())); }
  void CopyFrom(const NDArray& from) const { CopyFrom(&*from); }
  void CopyFrom(const void* from, size_t byte_count) const {
    Check(sterna_tensor_copy_from_memory(writable(), from, byte_count));
  }
  void CopyTo(DLTensor* to) const { Check(sterna_tensor_copy(&**this, to)); }
  void CopyTo(const NDArray& to) const { to.CopyFrom(*this); }
  void CopyTo(void* to, size_t byte_count) const {
    Check(sterna_tensor_copy_to_memory(&**this, to, byte_count));
  }
  NDArray CopyTo(DLDevice to) const {
    NDArray copy = Empty(shape(), dtype(), to);
    copy.CopyFrom(*this);
    return copy;
  }

  /* Another array over part of the same memory. */
  NDArray View(const Shape& shape, DType dtype, uint64_t byte_offset = 0) const {
    sterna_ndarray* made = nullptr;
    Check(sterna_ndarray_view(array(), shape.data(), Dims(shape), dtype, byte_offset, &made));
    return NDArray(made);
  }
  NDArray View(const Shape& shape) const { return View(shape, dtype()); }

 private:
  static int32_t Dims(const Shape& shape) { return static_cast<int32_t>(shape.size()); }
  sterna_ndarray* array() const {
    if (!get()) throw Error("ValueError", "the NDArray is empty: it refers to no array");
    return get();
  }
  DLTensor* writable() const {
    if (read_only()) throw Error("BufferError", "the array is read-only");
    return &array()->tensor;
  }
};

/* ---- 4  Values ------------------------------------------------------------------------------ */

/*
 * How a type travels. A specialization has one or both of
 *   static bool Put(const T& value, sterna_any* out);  a view of value, false; or a value that owns,
 *                                                      true, which the caller then releases
 *   static T Get(const sterna_any& value);             throws an Error when value is something else
 */
template <class T, class = void>
struct Traits {};

class Any;

namespace detail {

template <class T, class = void>
inline constexpr bool kCanPut = false;
template <class T>
inline constexpr bool kCanPut<T, std::void_t<decltype(&Traits<T>::Put)>> = true;
template <class T, class = void>
inline constexpr bool kCanGet = false;
template <class T>
inline constexpr bool kCanGet<T, std::void_t<decltype(&Traits<T>::Get)>> = true;

template <class T, class... Among>
inline constexpr bool kIsOneOf = (std::is_same_v<T, Among> || ...);

/* Results that point into the value they were read from. */
template <class T>
inline constexpr bool kBorrowsText = kIsOneOf<T, const char*, std::string_view, sterna_bytes>;
template <class T>
inline constexpr bool kBorrows = kBorrowsText<T> || kIsOneOf<T, DLTensor*, const DLTensor*>;
template <class T>
inline constexpr bool kBorrows<std::vector<T>> = kBorrows<T>;
template <class T>
inline constexpr bool kBorrows<std::optional<T>> = kBorrows<T>;

/* Not offered without being asked for: they would make "text = value" ambiguous. */
template <class T>
inline constexpr bool kExplicitOnly =
    kBorrowsText<T> || kIsOneOf<T, Any, char, wchar_t, char16_t, char32_t>;
template <class T>
inline constexpr bool kExplicitOnly<std::optional<T>> = true;

inline Error WrongKind(const char* expected, const sterna_any& got) {
  return Error("TypeError", std::string("expected ") + expected + ", got " +
                                sterna_type_name(got.type_index));
}

template <class T>
T Get(const sterna_any& value) {
  static_assert(kCanGet<T>, "values do not convert to this type; see sterna::Traits");
  if (value.type_index == STERNA_MOVED_OBJECT)
    return Traits<T>::Get(sterna_any_object(*static_cast<sterna_object**>(value.v_ptr)));
  return Traits<T>::Get(value);
}

}  // namespace detail

/* A value that owns what it holds. */
class Any {
 public:
  Any() noexcept : value_(sterna_any_none()) {}
  Any(const Any& other) noexcept : value_(other.value_) {
    if (value_.type_index >= STERNA_OBJECT) sterna_retain(value_.v_obj);
  }
  Any(Any&& other) noexcept : value_(other.release()) {}
  template <class T, std::enable_if_t<!std::is_same_v<std::decay_t<T>, Any> &&
                                          detail::kCanPut<std::decay_t<T>>,
                                      int> = 0>
  Any(const T& value) : Any() {
    sterna_any view;
    const bool owned = Traits<std::decay_t<T>>::Put(value, &view);
    if (owned) value_ = view;
    else Check(sterna_any_own(&view, &value_));
  }
  Any& operator=(Any other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Any() { sterna_any_release(&value_); }

  static Any Adopt(sterna_any owned) noexcept { /* takes the caller's reference over */
    Any value;
    value.value_ = owned;
    return value;
  }

  bool is_none() const noexcept { return value_.type_index == STERNA_NONE; }
  int32_t type_index() const noexcept { return value_.type_index; } /* one of sterna_type */
  const char* type_name() const { return sterna_type_name(value_.type_index); }

  template <class T>
  T as() const& {
    return detail::Get<T>(value_);
  }
  template <class T>
  T as() && {
    static_assert(!detail::kBorrows<T>, "this would point into a value that is about to end");
    return detail::Get<T>(value_);
  }
  template <class T,
            std::enable_if_t<detail::kCanGet<T> && !detail::kBorrows<T> && !detail::kExplicitOnly<T>,
                             int> = 0>
  operator T() const {
    return detail::Get<T>(value_);
  }

  const sterna_any& view() const noexcept { return value_; }
  sterna_any release() noexcept { return std::exchange(value_, sterna_any_none()); }

 private:
  sterna_any value_;
};

/* One argument, borrowed from the caller. It converts as Any does, and also to DLTensor*. */
class Arg {
 public:
  Arg(const sterna_any& value, int index, const char* function) noexcept
      : value_(&value), index_(index), function_(function) {}

  bool is_none() const noexcept { return value_->type_index == STERNA_NONE; }
  int32_t type_index() const noexcept { return value_->type_index; }
  const char* type_name() const { return sterna_type_name(value_->type_index); }
  const sterna_any& view() const noexcept { return *value_; }

  template <class T>
  T as() const {
    try {
      return detail::Get<T>(*value_);
    } catch (const Error& error) {
      throw Error(error.kind(), Name(index_, function_) + ": " + error.what());
    }
  }
  template <class T,
            std::enable_if_t<detail::kCanGet<T> && !detail::kExplicitOnly<T>, int> = 0>
  operator T() const {
    return as<T>();
  }

  static std::string Name(int index, const char* function) {
    std::string name = "argument " + std::to_string(index + 1);
    return function ? name + " of '" + function + "'" : name;
  }

 private:
  const sterna_any* value_;
  int index_;
  const char* function_; /* its name, or null */
};

/* The arguments of a call, borrowed from the caller. */
class Args {
 public:
  Args(const sterna_any* values, int32_t count, const char* function = nullptr) noexcept
      : values_(values), count_(count), function_(function) {}
  int size() const noexcept { return count_; }
  const sterna_any* data() const noexcept { return values_; }
  const char* function() const noexcept { return function_; } /* its name, or null */
  Arg operator[](int index) const {
    if (index < 0 || index >= count_)
      throw Error("TypeError", Arg::Name(index, function_) + " is missing: the call has " +
                                   std::to_string(count_));
    return Arg(values_[index], index, function_);
  }

 private:
  const sterna_any* values_;
  int32_t count_;
  const char* function_;
};

/* ---- 5  Functions --------------------------------------------------------------------------- */

namespace detail {

/* The one signature of a callable type, as R (*)(A...); void when there is none or many. */
template <class Method>
struct MethodSignature;
template <class C, class R, class... A>
struct MethodSignature<R (C::*)(A...)> { using type = R (*)(A...); };
template <class C, class R, class... A>
struct MethodSignature<R (C::*)(A...) const> { using type = R (*)(A...); };
template <class C, class R, class... A>
struct MethodSignature<R (C::*)(A...) noexcept> { using type = R (*)(A...); };
template <class C, class R, class... A>
struct MethodSignature<R (C::*)(A...) const noexcept> { using type = R (*)(A...); };

template <class F, class = void>
struct Signature { using type = void; };
template <class R, class... A>
struct Signature<R (*)(A...)> { using type = R (*)(A...); };
template <class R, class... A>
struct Signature<R (*)(A...) noexcept> { using type = R (*)(A...); };
template <class F>
struct Signature<F, std::void_t<typename MethodSignature<decltype(&F::operator())>::type>>
    : MethodSignature<decltype(&F::operator())> {};

template <class F>
using SignatureOf = typename Signature<std::decay_t<F>>::type;
template <class F>
inline constexpr bool kIsCallable = !std::is_void_v<SignatureOf<F>>;

/* The raw form gets the arguments as they are. */
template <class F>
void Invoke(F& f, void (*)(Args, Any*), const Args& args, Any* ret) { f(args, ret); }
template <class F>
void Invoke(F& f, void (*)(const Args&, Any*), const Args& args, Any* ret) { f(args, ret); }

template <class A>
inline constexpr bool kIsParameter =
    !std::is_lvalue_reference_v<A> || std::is_const_v<std::remove_reference_t<A>>;

template <class... A, size_t... I>
std::tuple<std::decay_t<A>...> Unpack([[maybe_unused]] const Args& args, std::index_sequence<I...>) {
  return std::tuple<std::decay_t<A>...>{args[static_cast<int>(I)].template as<std::decay_t<A>>()...};
}

template <class F, class R, class... A>
void Invoke(F& f, R (*)(A...), const Args& args, Any* ret) {
  static_assert((kIsParameter<A> && ...), "a parameter cannot be a reference to what it may change");
  constexpr size_t expected = sizeof...(A);
  if (static_cast<size_t>(args.size()) != expected)
    throw Error("TypeError",
                (args.function() ? "'" + std::string(args.function()) + "'" : "the function") +
                    " takes " + std::to_string(expected) +
                    (expected == 1 ? " argument, got " : " arguments, got ") +
                    std::to_string(args.size()));
  auto values = Unpack<A...>(args, std::make_index_sequence<expected>());
  if constexpr (std::is_void_v<R>) std::apply(f, std::move(values));
  else *ret = Any(std::apply(f, std::move(values)));
}

/* Calls f the way its signature wants, for a caller that speaks C. */
template <class F>
int CallFromC(F& f, const Args& args, sterna_any* ret) noexcept {
  return Guard([&] {
    Any result;
    Invoke(f, SignatureOf<F>(nullptr), args, &result);
    if (!result.is_none()) *ret = result.release();
  });
}

template <class F>
struct Closure {
  F body;
  std::string name;
  static int Call(void* self, const sterna_any* args, int32_t n, sterna_any* ret) noexcept {
    auto* closure = static_cast<Closure*>(self);
    const char* name = closure->name.empty() ? nullptr : closure->name.c_str();
    return CallFromC(closure->body, Args(args, n, name), ret);
  }
  static void Delete(void* self) { delete static_cast<Closure*>(self); }
};

/* Views of N arguments, and what had to be made for them. */
template <size_t N>
class Pack {
 public:
  Pack() noexcept = default;
  template <class... T>
  explicit Pack(const T&... values) : Pack() {
    size_t i = 0;
    ((owned_[i] = Traits<std::decay_t<T>>::Put(values, &views_[i]), ++i), ...);
  }
  Pack(const Pack&) = delete;
  Pack& operator=(const Pack&) = delete;
  ~Pack() {
    for (size_t i = 0; i < N; i++)
      if (owned_[i]) sterna_any_release(&views_[i]);
  }
  const sterna_any* data() const noexcept { return views_; }

 private:
  sterna_any views_[N];
  bool owned_[N] = {};
};
template <>
class Pack<0> {
 public:
  const sterna_any* data() const noexcept { return nullptr; }
};

}  // namespace detail

class Function : public Ref<sterna_function> {
 public:
  using Ref::Ref;

  /* From anything with one call operator. The raw form is void (Args args, Any* ret); every other
     signature is typed: arguments are counted and converted before the call, the result after it.
     The name is for messages. */
  template <class F, std::enable_if_t<detail::kIsCallable<F>, int> = 0>
  Function(F&& body, const std::string& name = "") {
    using Closure = detail::Closure<std::decay_t<F>>;
    auto closure = std::unique_ptr<Closure>(new Closure{std::forward<F>(body), name});
    sterna_function* made = nullptr;
    Check(sterna_function_create(Closure::Call, closure.get(), Closure::Delete, &made));
    closure.release();
    static_cast<Ref&>(*this) = Ref(made);
  }

  template <class... T>
  Any operator()(const T&... args) const {
    static_assert((detail::kCanPut<std::decay_t<T>> && ...),
                  "values cannot be made from an argument of this type; see sterna::Traits");
    const detail::Pack<sizeof...(T)> pack(args...);
    return CallPacked(Args(pack.data(), static_cast<int32_t>(sizeof...(T))));
  }
  template <class R, class... T>
  R call(const T&... args) const {
    if constexpr (std::is_void_v<R>) (*this)(args...);
    else return (*this)(args...).template as<R>();
  }
  Any CallPacked(const Args& args) const {
    if (!get()) throw Error("TypeError", "an empty Function was called");
    sterna_any ret = sterna_any_none();
    Check(sterna_function_call(get(), args.data(), args.size(), &ret));
    return Any::Adopt(ret);
  }

  /* The process's functions by name. */
  static Function GlobalOrNull(const std::string& name) {
    sterna_function* found = nullptr;
    Check(sterna_get_global(name.c_str(), &found));
    return Function(found);
  }
  static Function Global(const std::string& name) {
    Function found = GlobalOrNull(name);
    if (!found) throw Error("ValueError", "no function named '" + name + "' is registered");
    return found;
  }
  template <class F>
  static void Register(const std::string& name, F&& body, bool override_it = false) {
    if constexpr (std::is_same_v<std::decay_t<F>, Function>) {
      if (!body) throw Error("TypeError", "an empty Function cannot be registered");
      Check(sterna_register_function(name.c_str(), body.get(), override_it));
    } else {
      Register(name, Function(std::forward<F>(body), name), override_it);
    }
  }
  static void Remove(const std::string& name) { Check(sterna_remove_global(name.c_str())); }
  static std::vector<std::string> GlobalNames();
};

/* ---- 6  Modules ----------------------------------------------------------------------------- */

class Module : public Ref<sterna_module> {
 public:
  using Ref::Ref;

  static Module LoadFromFile(const std::string& path) {
    sterna_module* made = nullptr;
    Check(sterna_module_load(path.c_str(), &made));
    return Module(made);
  }
  /* What the program itself registered with sterna_register_system_symbol. */
  static Module SystemLib(const std::string& prefix = "") {
    sterna_module* made = nullptr;
    Check(sterna_system_module(prefix.c_str(), &made));
    return Module(made);
  }

  Function GetFunction(const std::string& name, bool query_imports = false) const {
    Function found = Find(name, query_imports);
    if (!found) throw Error("AttributeError", "Module has no function '" + name + "'");
    return found;
  }
  bool HasFunction(const std::string& name, bool query_imports = false) const {
    return static_cast<bool>(Find(name, query_imports));
  }
  void Import(const Module& other) const {
    Check(sterna_module_import(module(), other.module()));
  }
  std::vector<Module> imports() const {
    std::vector<Module> found;
    for (size_t i = 0; i < sterna_module_import_count(module()); i++) {
      sterna_module* imported = nullptr;
      Check(sterna_module_get_import(module(), i, &imported));
      found.push_back(Module(imported));
    }
    return found;
  }
  std::string kind() const { return sterna_module_kind(module()); }

 private:
  Function Find(const std::string& name, bool query_imports) const {
    sterna_function* found = nullptr;
    Check(sterna_module_get_function(module(), name.c_str(), query_imports, &found));
    return Function(found);
  }
  sterna_module* module() const {
    if (!get()) throw Error("ValueError", "the Module is empty: it refers to no module");
    return get();
  }
};

/* ---- 7  Which types travel ------------------------------------------------------------------ */

template <>
struct Traits<Any> {
  static bool Put(const Any& value, sterna_any* out) { return *out = value.view(), false; }
  static Any Get(const sterna_any& value) {
    sterna_any owned = sterna_any_none();
    Check(sterna_any_own(&value, &owned));
    return Any::Adopt(owned);
  }
};

template <>
struct Traits<Arg> {
  static bool Put(const Arg& value, sterna_any* out) { return *out = value.view(), false; }
};

template <>
struct Traits<std::nullptr_t> {
  static bool Put(std::nullptr_t, sterna_any* out) { return *out = sterna_any_none(), false; }
};

template <>
struct Traits<bool> {
  static bool Put(bool value, sterna_any* out) { return *out = sterna_any_bool(value), false; }
  static bool Get(const sterna_any& value) {
    if (value.type_index != STERNA_BOOL && value.type_index != STERNA_INT)
      throw detail::WrongKind("bool", value);
    return value.v_int64 != 0;
  }
};

template <class T>
struct Traits<T, std::enable_if_t<std::is_integral_v<T>>> {
  using Limits = std::numeric_limits<T>;
  static bool Put(T value, sterna_any* out) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) >= sizeof(int64_t))
      if (value > static_cast<uint64_t>(INT64_MAX))
        throw Error("OverflowError", std::to_string(value) + " is out of range for int64");
    return *out = sterna_any_int(static_cast<int64_t>(value)), false;
  }
  static T Get(const sterna_any& value) {
    int64_t number = 0;
    Check(sterna_as_int(&value, &number));
    const T narrow = static_cast<T>(number);
    if (static_cast<int64_t>(narrow) != number || (narrow < T(0)) != (number < 0))
      throw Error("OverflowError", std::to_string(number) + " is out of range for " +
                                       (Limits::is_signed ? "int" : "uint") +
                                       std::to_string(sizeof(T) * 8));
    return narrow;
  }
};

template <class T>
struct Traits<T, std::enable_if_t<std::is_enum_v<T>>> {
  using Number = std::underlying_type_t<T>;
  static bool Put(T value, sterna_any* out) {
    return Traits<Number>::Put(static_cast<Number>(value), out);
  }
  static T Get(const sterna_any& value) { return static_cast<T>(Traits<Number>::Get(value)); }
};

template <class T>
struct Traits<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static bool Put(T value, sterna_any* out) {
    return *out = sterna_any_float(static_cast<double>(value)), false;
  }
  static T Get(const sterna_any& value) {
    double number = 0;
    Check(sterna_as_float(&value, &number));
    return static_cast<T>(number);
  }
};

template <>
struct Traits<std::string_view> {
  static bool Put(std::string_view text, sterna_any* out) {
    Check(sterna_string(text.data(), text.size(), out));
    return true;
  }
  static std::string_view Get(const sterna_any& value) {
    sterna_bytes text;
    Check(sterna_as_string(&value, &text));
    return {text.data, text.size};
  }
};

template <>
struct Traits<const char*> {
  static bool Put(const char* text, sterna_any* out) {
    return *out = text ? sterna_any_c_string(text) : sterna_any_none(), false;
  }
  static const char* Get(const sterna_any& value) {
    return Traits<std::string_view>::Get(value).data(); /* always followed by a zero */
  }
};

template <>
struct Traits<char*> {
  static bool Put(const char* text, sterna_any* out) { return Traits<const char*>::Put(text, out); }
};

template <>
struct Traits<std::string> {
  static bool Put(const std::string& text, sterna_any* out) {
    const bool has_zeros = std::memchr(text.data(), 0, text.size()) != nullptr;
    return has_zeros ? Traits<std::string_view>::Put(text, out)
                     : Traits<const char*>::Put(text.c_str(), out);
  }
  static std::string Get(const sterna_any& value) {
    return std::string(Traits<std::string_view>::Get(value));
  }
};

template <>
struct Traits<sterna_bytes> { /* bytes that are no text */
  static bool Put(const sterna_bytes& bytes, sterna_any* out) {
    *out = sterna_any_none();
    out->type_index = STERNA_BYTES_VIEW;
    out->v_ptr = const_cast<sterna_bytes*>(&bytes);
    return false;
  }
  static sterna_bytes Get(const sterna_any& value) {
    sterna_bytes bytes;
    Check(sterna_as_bytes(&value, &bytes));
    return bytes;
  }
};

template <>
struct Traits<void*> { /* a pointer of no known type; null is none */
  static bool Put(void* pointer, sterna_any* out) {
    *out = sterna_any_none();
    if (pointer) out->type_index = STERNA_POINTER;
    if (pointer) out->v_ptr = pointer;
    return false;
  }
  static void* Get(const sterna_any& value) {
    if (value.type_index == STERNA_NONE) return nullptr;
    if (value.type_index != STERNA_POINTER) throw detail::WrongKind("a pointer", value);
    return value.v_ptr;
  }
};

template <>
struct Traits<DLDevice> {
  static bool Put(DLDevice device, sterna_any* out) {
    return *out = sterna_any_device(device.device_type, device.device_id), false;
  }
  static DLDevice Get(const sterna_any& value) {
    DLDevice device;
    Check(sterna_as_device(&value, &device));
    return device;
  }
};

template <>
struct Traits<DLDataType> {
  static bool Put(DLDataType dtype, sterna_any* out) {
    return *out = sterna_any_dtype(dtype), false;
  }
  static DLDataType Get(const sterna_any& value) {
    DLDataType dtype;
    Check(sterna_as_dtype(&value, &dtype));
    return dtype;
  }
};

template <>
struct Traits<DType> {
  static bool Put(DType dtype, sterna_any* out) { return Traits<DLDataType>::Put(dtype, out); }
  static DType Get(const sterna_any& value) { return Traits<DLDataType>::Get(value); }
};

template <>
struct Traits<DLTensor*> {
  static bool Put(DLTensor* tensor, sterna_any* out) {
    return *out = tensor ? sterna_any_tensor(tensor) : sterna_any_none(), false;
  }
  static DLTensor* Get(const sterna_any& value) {
    DLTensor* tensor = nullptr;
    Check(sterna_as_tensor(&value, &tensor));
    return tensor;
  }
};

template <>
struct Traits<const DLTensor*> {
  static const DLTensor* Get(const sterna_any& value) { return Traits<DLTensor*>::Get(value); }
};

template <>
struct Traits<NDArray> {
  static bool Put(const NDArray& array, sterna_any* out) {
    return *out = sterna_any_object(array.get()), false;
  }
  static NDArray Get(const sterna_any& value) {
    if (value.type_index == STERNA_TENSOR_VIEW)
      throw Error("TypeError", "expected an array object, got a bare DLTensor, which cannot be kept");
    if (value.type_index != STERNA_NDARRAY) throw detail::WrongKind("an array", value);
    return detail::Share<NDArray>(reinterpret_cast<sterna_ndarray*>(value.v_obj));
  }
};

template <>
struct Traits<Function> {
  static bool Put(const Function& function, sterna_any* out) {
    return *out = sterna_any_object(function.get()), false;
  }
  static Function Get(const sterna_any& value) {
    sterna_function* function = nullptr;
    Check(sterna_as_function(&value, &function));
    return detail::Share<Function>(function);
  }
};

template <>
struct Traits<Module> {
  static bool Put(const Module& module, sterna_any* out) {
    return *out = sterna_any_object(module.get()), false;
  }
  static Module Get(const sterna_any& value) {
    sterna_module* module = nullptr;
    Check(sterna_as_module(&value, &module));
    return detail::Share<Module>(module);
  }
};

template <class F>
struct Traits<F, std::enable_if_t<detail::kIsCallable<F>>> { /* becomes a Function */
  static bool Put(const F& body, sterna_any* out) {
    return *out = sterna_any_object(Function(body).release()), true;
  }
};

template <class T>
struct Traits<std::optional<T>, std::enable_if_t<detail::kCanPut<T> || detail::kCanGet<T>>> {
  static bool Put(const std::optional<T>& value, sterna_any* out) {
    return value ? Traits<T>::Put(*value, out) : Traits<std::nullptr_t>::Put(nullptr, out);
  }
  static std::optional<T> Get(const sterna_any& value) {
    if (value.type_index == STERNA_NONE) return std::nullopt;
    return Traits<T>::Get(value);
  }
};

template <class T>
struct Traits<std::vector<T>, std::enable_if_t<detail::kCanPut<T> || detail::kCanGet<T>>> {
  static bool Put(const std::vector<T>& items, sterna_any* out) {
    const std::vector<Any> owned(items.begin(), items.end());
    std::vector<sterna_any> views;
    for (const Any& item : owned) views.push_back(item.view());
    Check(sterna_list(views.data(), static_cast<int64_t>(views.size()), out));
    return true;
  }
  static std::vector<T> Get(const sterna_any& value) {
    std::vector<T> items;
    int64_t count = 0;
    if constexpr (std::is_integral_v<T>) { /* a shape will do as well */
      const int64_t* dims = nullptr;
      if (value.type_index == STERNA_SHAPE) {
        Check(sterna_as_shape(&value, &dims, &count));
        for (int64_t i = 0; i < count; i++) items.push_back(Traits<T>::Get(sterna_any_int(dims[i])));
        return items;
      }
    }
    const sterna_any* views = nullptr;
    Check(sterna_as_list(&value, &views, &count));
    for (int64_t i = 0; i < count; i++) try {
        items.push_back(Traits<T>::Get(views[i]));
      } catch (const Error& error) {
        throw Error(error.kind(), "item " + std::to_string(i) + ": " + error.what());
      }
    return items;
  }
};

inline std::vector<std::string> Function::GlobalNames() {
  sterna_any names = sterna_any_none();
  Check(sterna_list_globals(&names));
  return Any::Adopt(names).as<std::vector<std::string>>();
}

/* ---- 8  Registering and exporting ----------------------------------------------------------- */

#if defined(__GNUC__)
#define STERNA_OWN_COPY __attribute__((visibility("hidden"))) /* one per program or library */
#else
#define STERNA_OWN_COPY
#endif

namespace detail {
struct Failures {
  std::mutex mutex;
  std::vector<Error> errors;
};
STERNA_OWN_COPY inline Failures& RegistrationFailures() {
  static Failures failures;
  return failures;
}
}  // namespace detail

/* What STERNA_REGISTER_GLOBAL makes. */
class Registration {
 public:
  explicit Registration(const char* name) noexcept : name_(name) {}
  /* Replaces a function of the same name; to be said before set_body. */
  Registration& override() noexcept {
    override_ = true;
    return *this;
  }
  template <class F>
  STERNA_OWN_COPY Registration& set_body(F&& body) noexcept {
    if (Guard([&] { Function::Register(name_, std::forward<F>(body), override_); }))
      Guard([] {
        detail::Failures& failures = detail::RegistrationFailures();
        const std::lock_guard<std::mutex> lock(failures.mutex);
        failures.errors.push_back(Error::Last());
      });
    return *this;
  }
  template <class F>
  STERNA_OWN_COPY Registration& set_body_typed(F&& body) noexcept {
    return set_body(std::forward<F>(body));
  }

 private:
  const char* name_;
  bool override_ = false;
};

/* Registration happens before main() or while a library is being loaded, where an exception would
   end the process. So failures are kept, and this throws them: call it early in main(), or in the
   function that sterna_load_extension() calls. Each program and library sees its own. */
STERNA_OWN_COPY inline void CheckRegistrations() {
  detail::Failures& failures = detail::RegistrationFailures();
  const std::lock_guard<std::mutex> lock(failures.mutex);
  const std::vector<Error>& errors = failures.errors;
  if (errors.empty()) return;
  if (errors.size() == 1) throw errors[0];
  std::string text = std::to_string(errors.size()) + " functions could not be registered";
  for (const Error& error : errors) text += std::string("\n  ") + error.what();
  throw Error(errors[0].kind(), text, errors[0]);
}

#define STERNA_JOIN_(a, b) a##b
#define STERNA_JOIN(a, b) STERNA_JOIN_(a, b)

/* At namespace scope, at most one per line:
     STERNA_REGISTER_GLOBAL("my.add").set_body([](int a, int b) { return a + b; });
     STERNA_REGISTER_GLOBAL("my.any").override().set_body([](Args args, Any* ret) { ... }); */
#define STERNA_REGISTER_GLOBAL(name)                                                             \
  [[maybe_unused]] static const ::sterna::Registration STERNA_JOIN(sterna_registration_, __LINE__) = \
      ::sterna::Registration(name)

/* Exports a function or lambda from this library under a name that GetFunction finds. */
#define STERNA_EXPORT_TYPED(name, ...)                                                           \
  STERNA_FUNCTION(name) {                                                                        \
    (void)self;                                                                                  \
    static auto body = __VA_ARGS__;                                                              \
    return ::sterna::detail::CallFromC(body, ::sterna::Args(args, n, #name), ret);               \
  }

/* ---- 9  Threads ----------------------------------------------------------------------------- */

/* Calls body(task) or body(task, tasks) for every task from 0 to tasks - 1, spread over the threads
   of the pool, and returns when all are done. The first exception is thrown here. */
template <class F>
void Parallel(int32_t tasks, F&& body) {
  using Body = std::remove_reference_t<F>;
  auto run = [](int32_t task, [[maybe_unused]] int32_t count, void* data) -> int {
    return Guard([&] {
      Body& f = *static_cast<Body*>(data);
      if constexpr (std::is_invocable_v<Body&, int32_t, int32_t>) f(task, count);
      else f(task);
    });
  };
  Check(sterna_parallel(run, const_cast<std::remove_const_t<Body>*>(std::addressof(body)), tasks));
}

}  // namespace sterna

#endif /* STERNA_HPP_ */

/*
 * sterna.hpp - the Sterna runtime for C++17: modules, functions, arrays and errors with value
 * semantics. It is one header over sterna.h; link the runtime as for C.
 *
 *     Module mod = Module::LoadFromFile("model.so");
 *     NDArray x = NDArray::Empty({1, 3, 224, 224}, "float32");
 *     x.CopyFrom(pixels, pixel_bytes);
 *     NDArray y = mod.GetFunction("main")(x);               // throws sterna::Error when it fails
 *     const float* scores = y.data<float>();
 *
 * and the other way round, C++ functions for every other language to call:
 *
 *     double Mean(NDArray x, std::optional<double> weight);
 *     STERNA_REGISTER_GLOBAL("my.mean").set_body(Mean);     // in the process's registry
 *     STERNA_EXPORT_TYPED(mean, Mean);                      // as a symbol of this library
 *
 * Module, Function, NDArray  share one counted object each: a copy is another reference. They may
 *     be empty (test with "if (f)"); empty ones are passed as none.
 * Any  owns one value of any kind. It turns into the type it is assigned to, or into T by as<T>().
 *     Another kind is a TypeError, an integer too large for T an OverflowError. Types that borrow
 *     (const char*, std::string_view, DLTensor*), char and std::optional need as<T>().
 * Calls  borrow their arguments. Nothing is allocated for numbers, objects, C strings and
 *     std::string; a std::string_view of more than seven bytes is copied, a std::vector becomes a
 *     list, a lambda becomes a Function.
 * Error  is every failure: kind, message, cause. An exception that leaves a C++ function called
 *     from elsewhere arrives there as an error, and a sterna::Error as the very same one.
 * Threads  may use all of this at once, though one variable must not be assigned to while another
 *     thread uses it. A function's body runs in whichever threads call it.
 */
#ifndef STERNA_HPP_
#define STERNA_HPP_

#include <cstdint>
#include <cstring>
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

/* ---- 1  Errors ------------------------------------------------------------------------------ */

/* Holds one reference to a counted object, or nothing. */
template <class T>
class Ref {
 public:
  using Object = T;
  Ref() noexcept = default;
  explicit Ref(T* owned) noexcept : object_(owned) {} /* takes the caller's reference over */
  Ref(const Ref& other) noexcept : object_(other.object_) { sterna_retain(object_); }
  Ref(Ref&& other) noexcept : object_(other.release()) {}
  Ref& operator=(Ref other) noexcept { return std::swap(object_, other.object_), *this; }
  ~Ref() { sterna_release(object_); }

  explicit operator bool() const noexcept { return object_ != nullptr; }
  T* get() const noexcept { return object_; }                       /* borrowed */
  T* release() noexcept { return std::exchange(object_, nullptr); } /* now the caller's */

 private:
  T* object_ = nullptr;
};

class Error : public std::runtime_error {
 public:
  Error(const std::string& kind, const std::string& message) : Error(New(kind, message, nullptr)) {}
  Error(const std::string& kind, const std::string& message, const Error& cause)
      : Error(New(kind, message, cause.get())) {}
  explicit Error(Ref<sterna_error> error)
      : std::runtime_error(Text(error.get()->message)), error_(std::move(error)) {}

  /* The name of an exception class: "TypeError", "ValueError", ... The message is what(). */
  std::string kind() const { return Text(error_.get()->kind); }
  std::optional<Error> cause() const { /* the error that led to this one */
    sterna_object* before = error_.get()->cause;
    if (!before || before->type_index != STERNA_ERROR) return std::nullopt;
    sterna_retain(before);
    return Error(Ref<sterna_error>(reinterpret_cast<sterna_error*>(before)));
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
  static Ref<sterna_error> New(const std::string& kind, const std::string& message,
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

/* For functions that C calls: runs body and turns an exception into this thread's error and -1. */
template <class Body>
int Guard(Body&& body) noexcept {
  try {
    return body(), 0;
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

namespace detail {

/* Calls make(args..., &object) and gives what it made. */
template <class Handle, class Make, class... A>
Handle New(Make make, A... args) {
  typename Handle::Object* object = nullptr;
  Check(make(args..., &object));
  return Handle(object);
}
template <class Handle>
Handle Share(typename Handle::Object* borrowed) {
  return sterna_retain(borrowed), Handle(borrowed);
}
template <class Handle>
typename Handle::Object* NotEmpty(const Handle& handle, const char* what) {
  if (!handle) throw Error("ValueError", std::string("the ") + what + " is empty");
  return handle.get();
}

}  // namespace detail

/* ---- 2  Arrays ------------------------------------------------------------------------------ */

/* A data type, which may be given by name: "float32", "int8x4", ... */
class DType {
 public:
  DType(DLDataType dtype) noexcept : dtype_(dtype) {}
  DType(std::string_view name) { Check(sterna_dtype_parse(name.data(), name.size(), &dtype_)); }
  DType(const char* name) : DType(std::string_view(name)) {}
  DType(const std::string& name) : DType(std::string_view(name)) {}
  operator DLDataType() const noexcept { return dtype_; }
  std::string name() const {
    char buffer[32];
    return sterna_dtype_name(dtype_, buffer), buffer;
  }

 private:
  DLDataType dtype_{};
};

class NDArray : public Ref<sterna_ndarray> {
 public:
  using Ref::Ref;
  using Shape = std::vector<int64_t>;

  static NDArray Empty(const Shape& shape, DType dtype, DLDevice device = {kDLCPU, 0}) {
    return detail::New<NDArray>(sterna_ndarray_empty, shape.data(), Dims(shape), dtype, device);
  }
  /* Takes the structure over when it works; when it throws, the structure is still the caller's. */
  static NDArray FromDLPack(DLManagedTensor* from) {
    return detail::New<NDArray>(sterna_ndarray_from_dlpack, from);
  }
  static NDArray FromDLPack(DLManagedTensorVersioned* from) {
    return detail::New<NDArray>(sterna_ndarray_from_dlpack_versioned, from);
  }
  /* Shares the memory; whoever receives the structure calls its deleter. */
  DLManagedTensor* ToDLPack() const {
    DLManagedTensor* out = nullptr;
    return Check(sterna_ndarray_to_dlpack(array(), &out)), out;
  }
  DLManagedTensorVersioned* ToDLPackVersioned() const {
    DLManagedTensorVersioned* out = nullptr;
    return Check(sterna_ndarray_to_dlpack_versioned(array(), &out)), out;
  }

  DLTensor* tensor() const { return &array()->tensor; }
  DLTensor* operator->() const { return tensor(); }
  int ndim() const { return tensor()->ndim; }
  Shape shape() const { return Shape(tensor()->shape, tensor()->shape + ndim()); }
  DType dtype() const { return tensor()->dtype; }
  DLDevice device() const { return tensor()->device; }
  int64_t size() const { /* in elements */
    int64_t count = 1;
    for (int i = 0; i < ndim(); i++) count *= tensor()->shape[i];
    return count;
  }
  size_t bytes() const {
    size_t count = 0;
    return Check(sterna_tensor_bytes(tensor(), &count)), count;
  }
  bool read_only() const { return sterna_ndarray_is_read_only(array()) != 0; }

  /* The first element; it can be read here if the device is the CPU. T has the size of an element,
     or is a byte or void. */
  template <class T>
  T* data() const {
    if constexpr (!std::is_void_v<T>) {
      const size_t bits = tensor()->dtype.bits, all_bits = bits * tensor()->dtype.lanes;
      if (sizeof(T) != 1 && sizeof(T) * 8 != bits && sizeof(T) * 8 != all_bits)
        throw Error("TypeError", "elements of " + dtype().name() + " do not have " +
                                     std::to_string(sizeof(T)) + " bytes");
    }
    return reinterpret_cast<T*>(static_cast<char*>(tensor()->data) + tensor()->byte_offset);
  }

  /* Copies need equal numbers of bytes on both sides; the devices may differ. */
  void CopyFrom(const DLTensor* from) const { Check(sterna_tensor_copy(from, writable())); }
  void CopyFrom(const NDArray& from) const { CopyFrom(from.tensor()); }
  void CopyFrom(const void* from, size_t count) const {
    Check(sterna_tensor_copy_from_memory(writable(), from, count));
  }
  void CopyTo(DLTensor* to) const { Check(sterna_tensor_copy(tensor(), to)); }
  void CopyTo(const NDArray& to) const { to.CopyFrom(*this); }
  void CopyTo(void* to, size_t count) const {
    Check(sterna_tensor_copy_to_memory(tensor(), to, count));
  }
  NDArray CopyTo(DLDevice to) const {
    NDArray copy = Empty(shape(), dtype(), to);
    return CopyTo(copy), copy;
  }

  /* Another array over part of the same memory. */
  NDArray View(const Shape& shape, DType dtype, uint64_t byte_offset = 0) const {
    return detail::New<NDArray>(sterna_ndarray_view, array(), shape.data(), Dims(shape), dtype,
                                byte_offset);
  }
  NDArray View(const Shape& shape) const { return View(shape, dtype()); }

 private:
  static int32_t Dims(const Shape& shape) { return static_cast<int32_t>(shape.size()); }
  sterna_ndarray* array() const { return detail::NotEmpty(*this, "NDArray"); }
  DLTensor* writable() const {
    if (read_only()) throw Error("BufferError", "the array is read-only");
    return tensor();
  }
};

/* ---- 3  Values ------------------------------------------------------------------------------ */

class Any;
class Arg;
class Args;
class Function;
class Module;

namespace detail {

/* The signature of a type with one call operator, as R (*)(A...); otherwise void. */
template <class F, class = void>
struct Signature { using type = void; };
template <class R, bool Quiet, class... A>
struct Signature<R (*)(A...) noexcept(Quiet)> { using type = R (*)(A...); };
template <class C, class R, bool Quiet, class... A>
struct Signature<R (C::*)(A...) noexcept(Quiet)> { using type = R (*)(A...); };
template <class C, class R, bool Quiet, class... A>
struct Signature<R (C::*)(A...) const noexcept(Quiet)> { using type = R (*)(A...); };
template <class F>
struct Signature<F, std::void_t<decltype(&F::operator())>> : Signature<decltype(&F::operator())> {};
template <class F>
using SignatureOf = typename Signature<std::decay_t<F>>::type;
template <class F>
inline constexpr bool kIsCallable =
    !std::is_void_v<SignatureOf<F>> && !std::is_member_pointer_v<std::decay_t<F>>;

template <class T, class... Among>
inline constexpr bool kIsOneOf = (std::is_same_v<T, Among> || ...);

/* What can be made from a value; of that, what points into the value; and what a value does not
   turn into unless asked, as "text = value" would be ambiguous. */
template <class T>
inline constexpr bool kBorrows =
    kIsOneOf<T, const char*, std::string_view, sterna_bytes, DLTensor*, const DLTensor*>;
template <class T>
inline constexpr bool kCanGet =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || kBorrows<T> ||
    kIsOneOf<T, Any, std::string, void*, DLDevice, DLDataType, DType, NDArray, Function, Module>;
template <class T>
inline constexpr bool kOnlyAsked =
    kIsOneOf<T, Any, char, wchar_t, char16_t, char32_t, const char*, std::string_view>;
/* What a value can be made from. */
template <class T>
inline constexpr bool kCanPut =
    kIsCallable<T> || kIsOneOf<T, Arg, std::nullptr_t, char*> ||
    (kCanGet<T> && !std::is_same_v<T, const DLTensor*>);

template <class T> inline constexpr bool kIsVector = false;
template <class T> inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T> inline constexpr bool kBorrows<std::vector<T>> = kBorrows<T>;
template <class T> inline constexpr bool kCanGet<std::vector<T>> = kCanGet<T>;
template <class T> inline constexpr bool kCanPut<std::vector<T>> = kCanPut<T>;
template <class T> inline constexpr bool kIsOptional = false;
template <class T> inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T> inline constexpr bool kBorrows<std::optional<T>> = kBorrows<T>;
template <class T> inline constexpr bool kCanGet<std::optional<T>> = kCanGet<T>;
template <class T> inline constexpr bool kCanPut<std::optional<T>> = kCanPut<T>;
template <class T> inline constexpr bool kOnlyAsked<std::optional<T>> = true;

/* A value on its way into a call: a view of something, or new and ended afterwards. */
struct Packed {
  Packed(sterna_any view, bool is_new = false) noexcept : value(view), owned(is_new) {}
  Packed(const Packed&) = delete;
  ~Packed() { if (owned) sterna_any_release(&value); }
  sterna_any value;
  bool owned;
};
template <class T> Packed Put(const T& value); /* both are in section 6 */
template <class T> T Get(const sterna_any& value);

}  // namespace detail

/* A value that owns what it holds. */
class Any {
 public:
  Any() noexcept : value_(sterna_any_none()) {}
  Any(const Any& other) noexcept : value_(other.value_) {
    if (value_.type_index >= STERNA_OBJECT) sterna_retain(value_.v_obj);
  }
  Any(Any&& other) noexcept : value_(other.release()) {}
  template <class T, std::enable_if_t<detail::kCanPut<std::decay_t<const T&>>, int> = 0>
  Any(const T& value) : Any() {
    detail::Packed packed = detail::Put<std::decay_t<const T&>>(value);
    if (packed.owned) std::swap(value_, packed.value);
    else Check(sterna_any_own(&packed.value, &value_));
  }
  explicit Any(sterna_any owned) noexcept : value_(owned) {} /* takes the reference over */
  Any& operator=(Any other) noexcept { return std::swap(value_, other.value_), *this; }
  ~Any() { sterna_any_release(&value_); }

  template <class T>
  T as() const& { return detail::Get<T>(value_); }
  template <class T>
  T as() && {
    static_assert(!detail::kBorrows<T>, "this would point into a value that is about to end");
    return detail::Get<T>(value_);
  }
  template <class T, std::enable_if_t<detail::kCanGet<T> && !detail::kBorrows<T> &&
                                          !detail::kOnlyAsked<T>, int> = 0>
  operator T() const { return detail::Get<T>(value_); }

  bool is_none() const noexcept { return value_.type_index == STERNA_NONE; }
  int32_t type_index() const noexcept { return value_.type_index; } /* one of sterna_type */
  const sterna_any& view() const noexcept { return value_; }
  sterna_any release() noexcept { return std::exchange(value_, sterna_any_none()); }

 private:
  sterna_any value_;
};

/* One argument, borrowed from the caller. It converts as Any does, and to DLTensor*. */
class Arg {
 public:
  Arg(const sterna_any* value, int index, const char* function) noexcept
      : value_(value), index_(index), function_(function) {}

  template <class T>
  T as() const {
    try {
      return detail::Get<T>(*value_);
    } catch (const Error& error) {
      throw Error(error.kind(), name() + ": " + error.what());
    }
  }
  template <class T, std::enable_if_t<detail::kCanGet<T> && !detail::kOnlyAsked<T>, int> = 0>
  operator T() const { return as<T>(); }

  bool is_none() const noexcept { return value_->type_index == STERNA_NONE; }
  int32_t type_index() const noexcept { return value_->type_index; }
  const sterna_any& view() const noexcept { return *value_; }
  std::string name() const { /* "argument 1 of 'add'" */
    std::string text = "argument " + std::to_string(index_ + 1);
    return function_ ? text + " of '" + function_ + "'" : text;
  }

 private:
  const sterna_any* value_;
  int index_;
  const char* function_;
};

/* The arguments of a call, borrowed from the caller. */
class Args {
 public:
  Args(const sterna_any* values, int32_t count, const char* function = nullptr) noexcept
      : values_(values), count_(count), function_(function) {}
  int size() const noexcept { return count_; }
  const sterna_any* data() const noexcept { return values_; }
  const char* function() const noexcept { return function_; } /* the callee's name, or null */
  Arg operator[](int index) const {
    if (index >= 0 && index < count_) return Arg(values_ + index, index, function_);
    throw Error("TypeError", Arg(nullptr, index, function_).name() + " is missing, got " +
                                 std::to_string(count_));
  }

 private:
  const sterna_any* values_;
  int32_t count_;
  const char* function_;
};

/* ---- 4  Functions --------------------------------------------------------------------------- */

namespace detail {

/* The raw form gets the arguments as they are. */
template <class F>
void Invoke(F& f, void (*)(Args, Any*), const Args& args, Any* ret) { f(args, ret); }
template <class F>
void Invoke(F& f, void (*)(const Args&, Any*), const Args& args, Any* ret) { f(args, ret); }

/* The typed form gets as many as it takes, converted. */
template <class... A, size_t... I>
auto Convert([[maybe_unused]] const Args& args, std::index_sequence<I...>) {
  return std::tuple<A...>{args[static_cast<int>(I)].template as<A>()...};
}
template <class F, class R, class... A>
void Invoke(F& f, R (*)(A...), const Args& args, [[maybe_unused]] Any* ret) {
  static_assert((std::is_convertible_v<std::decay_t<A>&&, A> && ...),
                "a parameter cannot be a reference to something to change");
  constexpr int expected = sizeof...(A);
  if (args.size() != expected)
    throw Error("TypeError",
                (args.function() ? "'" + std::string(args.function()) + "'" : "the function") +
                    " takes " + std::to_string(expected) +
                    (expected == 1 ? " argument, got " : " arguments, got ") +
                    std::to_string(args.size()));
  auto values = Convert<std::decay_t<A>...>(args, std::index_sequence_for<A...>());
  if constexpr (std::is_void_v<R>) std::apply(f, std::move(values));
  else *ret = Any(std::apply(f, std::move(values)));
}

template <class F>
void Run(F& f, const Args& args, sterna_any* ret) {
  Any result;
  Invoke(f, SignatureOf<F>(nullptr), args, &result);
  if (!result.is_none()) *ret = result.release();
}

template <class F>
struct Closure {
  F body;
  std::string name;
  static int Call(void* self, const sterna_any* args, int32_t n, sterna_any* ret) noexcept {
    auto* c = static_cast<Closure*>(self);
    const char* known = c->name.empty() ? nullptr : c->name.c_str();
    return Guard([&] { Run(c->body, Args(args, n, known), ret); });
  }
  static void Delete(void* self) { delete static_cast<Closure*>(self); }
};

}  // namespace detail

class Function : public Ref<sterna_function> {
 public:
  using Ref::Ref;

  /* From anything with one call operator. The raw form is void (Args args, Any* ret); every other
     signature is typed: arguments are counted and converted first, the result afterwards. The name
     is for messages. */
  template <class F, std::enable_if_t<detail::kIsCallable<F>, int> = 0>
  Function(F&& body, const std::string& name = "") {
    using Closure = detail::Closure<std::decay_t<F>>;
    std::unique_ptr<Closure> closure(new Closure{std::forward<F>(body), name});
    *this = detail::New<Function>(sterna_function_create, Closure::Call,
                                  static_cast<void*>(closure.get()), Closure::Delete);
    closure.release();
  }

  template <class... T>
  Any operator()(const T&... args) const {
    constexpr int32_t n = sizeof...(T);
    const detail::Packed packed[n + 1] = {detail::Put<std::decay_t<const T&>>(args)...,
                                          sterna_any_none()};
    sterna_any views[n + 1];
    for (int32_t i = 0; i < n; i++) views[i] = packed[i].value;
    return CallPacked(Args(views, n));
  }
  template <class R, class... T>
  R call(const T&... args) const {
    if constexpr (std::is_void_v<R>) (*this)(args...);
    else return (*this)(args...).template as<R>();
  }
  Any CallPacked(const Args& args) const {
    sterna_any ret = sterna_any_none();
    sterna_function* function = detail::NotEmpty(*this, "Function");
    return Check(sterna_function_call(function, args.data(), args.size(), &ret)), Any(ret);
  }

  /* The process's functions by name. */
  static Function GlobalOrNull(const std::string& name) {
    return detail::New<Function>(sterna_get_global, name.c_str());
  }
  static Function Global(const std::string& name) {
    Function found = GlobalOrNull(name);
    if (!found) throw Error("ValueError", "no function named '" + name + "' is registered");
    return found;
  }
  static void Register(const std::string& name, const Function& f, bool override_it = false) {
    Check(sterna_register_function(name.c_str(), detail::NotEmpty(f, "Function"), override_it));
  }
  template <class F, std::enable_if_t<detail::kIsCallable<F>, int> = 0>
  static void Register(const std::string& name, F&& body, bool override_it = false) {
    Register(name, Function(std::forward<F>(body), name), override_it);
  }
  static void Remove(const std::string& name) { Check(sterna_remove_global(name.c_str())); }
  static std::vector<std::string> GlobalNames() {
    sterna_any names = sterna_any_none();
    return Check(sterna_list_globals(&names)), Any(names);
  }
};

/* ---- 5  Modules ----------------------------------------------------------------------------- */

class Module : public Ref<sterna_module> {
 public:
  using Ref::Ref;

  static Module LoadFromFile(const std::string& path) {
    return detail::New<Module>(sterna_module_load, path.c_str());
  }
  /* The functions registered with sterna_register_system_symbol. */
  static Module SystemLib(const std::string& prefix = "") {
    return detail::New<Module>(sterna_system_module, prefix.c_str());
  }

  Function GetFunction(const std::string& name, bool query_imports = false) const {
    Function found = Find(name, query_imports);
    if (!found) throw Error("AttributeError", "Module has no function '" + name + "'");
    return found;
  }
  bool HasFunction(const std::string& name, bool query_imports = false) const {
    return static_cast<bool>(Find(name, query_imports));
  }
  void Import(const Module& other) const { Check(sterna_module_import(module(), other.module())); }
  std::vector<Module> imports() const {
    std::vector<Module> found;
    for (size_t i = 0; i < sterna_module_import_count(module()); i++)
      found.push_back(detail::New<Module>(sterna_module_get_import, module(), i));
    return found;
  }
  std::string kind() const { return sterna_module_kind(module()); }

 private:
  Function Find(const std::string& name, bool query_imports) const {
    return detail::New<Function>(sterna_module_get_function, module(), name.c_str(), query_imports);
  }
  sterna_module* module() const { return detail::NotEmpty(*this, "Module"); }
};

/* ---- 6  How each type travels --------------------------------------------------------------- */

namespace detail {

inline sterna_any PointerView(int32_t type_index, const void* pointer) {
  sterna_any view = sterna_any_none();
  if (!pointer) return view;
  view.type_index = type_index;
  view.v_ptr = const_cast<void*>(pointer);
  return view;
}

inline Packed NewText(std::string_view text) {
  sterna_any copy = sterna_any_none();
  return Check(sterna_string(text.data(), text.size(), &copy)), Packed(copy, true);
}

template <class T>
Packed NewList(const std::vector<T>& items) {
  std::vector<Any> owned;
  std::vector<sterna_any> views;
  for (const T& item : items) views.push_back(owned.emplace_back(item).view());
  sterna_any list = sterna_any_none();
  Check(sterna_list(views.data(), static_cast<int64_t>(views.size()), &list));
  return Packed(list, true);
}

inline bool HasZeros(const std::string& s) { return std::memchr(s.data(), 0, s.size()) != nullptr; }

template <class T>
Packed Put(const T& value) {
  static_assert(kCanPut<T>, "no value can be made from this type");
  if constexpr (kIsOneOf<T, Any, Arg>) return value.view();
  else if constexpr (std::is_same_v<T, std::nullptr_t>) return sterna_any_none();
  else if constexpr (std::is_same_v<T, bool>) return sterna_any_bool(value);
  else if constexpr (std::is_floating_point_v<T>) return sterna_any_float(double(value));
  else if constexpr (std::is_enum_v<T>) return Put(static_cast<std::underlying_type_t<T>>(value));
  else if constexpr (std::is_integral_v<T>) {
    if ((static_cast<int64_t>(value) < 0) == (value < T{})) return sterna_any_int(int64_t(value));
    throw Error("OverflowError", std::to_string(value) + " is out of range for int64");
  }
  else if constexpr (kIsOneOf<T, const char*, char*>) return PointerView(STERNA_C_STRING, value);
  else if constexpr (std::is_same_v<T, std::string_view>) return NewText(value);
  else if constexpr (std::is_same_v<T, std::string>)
    return HasZeros(value) ? NewText(value) : sterna_any_c_string(value.c_str());
  else if constexpr (std::is_same_v<T, sterna_bytes>) return PointerView(STERNA_BYTES_VIEW, &value);
  else if constexpr (std::is_same_v<T, void*>) return PointerView(STERNA_POINTER, value);
  else if constexpr (std::is_same_v<T, DLTensor*>) return PointerView(STERNA_TENSOR_VIEW, value);
  else if constexpr (kIsOneOf<T, DLDataType, DType>) return sterna_any_dtype(value);
  else if constexpr (std::is_same_v<T, DLDevice>)
    return sterna_any_device(value.device_type, value.device_id);
  else if constexpr (kIsCallable<T>)
    return {sterna_any_object(Function(value).release()), true};
  else if constexpr (kIsOptional<T>) return value ? Put(*value) : Packed(sterna_any_none());
  else if constexpr (kIsVector<T>) return NewList(value);
  else return sterna_any_object(value.get());
}

inline Error WrongKind(const char* expected, const sterna_any& got) {
  const char* kind = got.type_index == STERNA_TENSOR_VIEW ? "a bare DLTensor, which cannot be kept"
                                                          : sterna_type_name(got.type_index);
  return Error("TypeError", std::string("expected ") + expected + ", got " + kind);
}

template <class T>
T Read(int (*read)(const sterna_any*, T*), const sterna_any& value) {
  T out{};
  return Check(read(&value, &out)), out;
}

template <class T>
T Narrow(int64_t number) {
  const T narrow = static_cast<T>(number);
  if (static_cast<int64_t>(narrow) == number && (narrow < T{}) == (number < 0)) return narrow;
  throw Error("OverflowError", std::to_string(number) + " is out of range for " +
                                   (std::is_signed_v<T> ? "int" : "uint") +
                                   std::to_string(sizeof(T) * 8));
}

template <class T>
std::vector<T> ReadList(const sterna_any& value) {
  const sterna_any* views = nullptr;
  const int64_t* dims = nullptr; /* integers may also come as a shape */
  int64_t count = 0;
  const bool is_shape = std::is_integral_v<T> && value.type_index == STERNA_SHAPE;
  Check(is_shape ? sterna_as_shape(&value, &dims, &count) : sterna_as_list(&value, &views, &count));
  std::vector<T> items;
  for (int64_t i = 0; i < count; i++) try {
      items.push_back(dims ? Get<T>(sterna_any_int(dims[i])) : Get<T>(views[i]));
    } catch (const Error& error) {
      throw Error(error.kind(), "item " + std::to_string(i) + ": " + error.what());
    }
  return items;
}

template <class T>
T Get(const sterna_any& value) {
  static_assert(kCanGet<T>, "values do not convert to this type");
  const int32_t kind = value.type_index;
  if (kind == STERNA_MOVED_OBJECT)
    return Get<T>(sterna_any_object(*static_cast<sterna_object**>(value.v_ptr)));
  if constexpr (std::is_same_v<T, Any>) return Any(Read(sterna_any_own, value));
  else if constexpr (std::is_same_v<T, bool>) {
    if (kind != STERNA_BOOL && kind != STERNA_INT) throw WrongKind("bool", value);
    return value.v_int64 != 0;
  }
  else if constexpr (std::is_floating_point_v<T>) return T(Read(sterna_as_float, value));
  else if constexpr (std::is_integral_v<T>) return Narrow<T>(Read(sterna_as_int, value));
  else if constexpr (std::is_enum_v<T>) return T(Get<std::underlying_type_t<T>>(value));
  else if constexpr (kIsOneOf<T, std::string, std::string_view>) {
    const sterna_bytes text = Read(sterna_as_string, value);
    return T(text.data, text.size);
  }
  else if constexpr (std::is_same_v<T, const char*>) return Read(sterna_as_string, value).data;
  else if constexpr (std::is_same_v<T, sterna_bytes>) return Read(sterna_as_bytes, value);
  else if constexpr (std::is_same_v<T, void*>) {
    if (kind != STERNA_POINTER && kind != STERNA_NONE) throw WrongKind("a pointer", value);
    return kind == STERNA_NONE ? nullptr : value.v_ptr;
  }
  else if constexpr (std::is_same_v<T, DLDevice>) return Read(sterna_as_device, value);
  else if constexpr (kIsOneOf<T, DLDataType, DType>) return Read(sterna_as_dtype, value);
  else if constexpr (kIsOneOf<T, DLTensor*, const DLTensor*>) return Read(sterna_as_tensor, value);
  else if constexpr (std::is_same_v<T, Function>) return Share<T>(Read(sterna_as_function, value));
  else if constexpr (std::is_same_v<T, Module>) return Share<T>(Read(sterna_as_module, value));
  else if constexpr (std::is_same_v<T, NDArray>) {
    if (kind != STERNA_NDARRAY) throw WrongKind("an array", value);
    return Share<T>(reinterpret_cast<sterna_ndarray*>(value.v_obj));
  }
  else if constexpr (kIsVector<T>) return ReadList<typename T::value_type>(value);
  else if constexpr (kIsOptional<T>)
    return kind == STERNA_NONE ? T() : T(Get<typename T::value_type>(value));
}

}  // namespace detail

/* ---- 7  Registering and exporting ----------------------------------------------------------- */

#if defined(__GNUC__)
#define STERNA_PRIVATE __attribute__((visibility("hidden"))) /* each library has its own */
#else
#define STERNA_PRIVATE
#endif

namespace detail {

struct Failures {
  std::mutex mutex;
  std::vector<Error> errors;
};
STERNA_PRIVATE inline Failures& RegistrationFailures() {
  static Failures failures;
  return failures;
}
inline void KeepFailure(Failures& failures) noexcept {
  Guard([&] {
    const std::lock_guard<std::mutex> lock(failures.mutex);
    failures.errors.push_back(Error::Last());
  });
}

}  // namespace detail

/* What STERNA_REGISTER_GLOBAL makes. */
class Registration {
 public:
  explicit Registration(const char* name) noexcept : name_(name) {}
  Registration& override() noexcept { return override_ = true, *this; } /* say it before set_body */
  template <class F>
  STERNA_PRIVATE Registration& set_body(F&& body) noexcept {
    if (Guard([&] { Function::Register(name_, std::forward<F>(body), override_); }))
      detail::KeepFailure(detail::RegistrationFailures());
    return *this;
  }
  template <class F>
  STERNA_PRIVATE Registration& set_body_typed(F&& body) noexcept {
    return set_body(std::forward<F>(body));
  }

 private:
  const char* name_;
  bool override_ = false;
};

/* Registration happens before main() or while a library is loaded, where an exception would end the
   process. So failures are kept, and this throws them: call it early in main(), or in the function
   that sterna_load_extension() calls. Every program and library has its own. */
STERNA_PRIVATE inline void CheckRegistrations() {
  detail::Failures& failures = detail::RegistrationFailures();
  const std::lock_guard<std::mutex> lock(failures.mutex);
  const std::vector<Error>& errors = failures.errors;
  if (errors.empty()) return;
  if (errors.size() == 1) throw Error(errors[0]);
  std::string text = std::to_string(errors.size()) + " functions could not be registered";
  for (const Error& error : errors) text += std::string("\n  ") + error.what();
  throw Error(errors[0].kind(), text, errors[0]);
}

#define STERNA_JOIN_(a, b) a##b
#define STERNA_JOIN(a, b) STERNA_JOIN_(a, b)

/* At namespace scope, at most one per line:
     STERNA_REGISTER_GLOBAL("my.add").set_body([](int a, int b) { return a + b; });
     STERNA_REGISTER_GLOBAL("my.any").override().set_body([](Args args, Any* ret) { ... }); */
#define STERNA_REGISTER_GLOBAL(name)                                                          \
  [[maybe_unused]] static const ::sterna::Registration STERNA_JOIN(sterna_registration_, __LINE__) \
      = ::sterna::Registration(name)

/* Exports a function or lambda from this library, for GetFunction to find under the name:
     STERNA_EXPORT_TYPED(add, [](int a, int b) { return a + b; }); */
#define STERNA_EXPORT_TYPED(name, ...)                                                     \
  static auto& sterna_body_of_##name() {                                                   \
    static auto sterna_body = __VA_ARGS__;                                                 \
    return sterna_body;                                                                    \
  }                                                                                        \
  STERNA_FUNCTION(name) {                                                                  \
    (void)self;                                                                            \
    return ::sterna::Guard([&] {                                                           \
      ::sterna::detail::Run(sterna_body_of_##name(), ::sterna::Args(args, n, #name), ret); \
    });                                                                                    \
  }                                                                                        \
  static_assert(true, "takes the semicolon")

/* ---- 8  Threads ----------------------------------------------------------------------------- */

/* Calls body(task) or body(task, tasks) for every task from 0 to tasks - 1, spread over the threads
   of the pool, and returns when all are done. The first exception is thrown here. */
template <class F>
void Parallel(int32_t tasks, F&& body) {
  auto run = [&](int32_t task) {
    if constexpr (std::is_invocable_v<F&, int32_t, int32_t>) body(task, tasks);
    else body(task);
  };
  auto enter = [](int32_t task, int32_t, void* data) {
    return Guard([&] { (*static_cast<decltype(run)*>(data))(task); });
  };
  Check(sterna_parallel(enter, &run, tasks));
}

}  // namespace sterna

#endif /* STERNA_HPP_ */

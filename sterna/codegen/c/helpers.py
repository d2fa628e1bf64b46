"""The C functions that generated code calls, each written into a file only if it is used."""

from collections.abc import Callable

from sterna.codegen.c import small_floats
from sterna.codegen.c.check_array import CHECK_ARRAY
from sterna.codegen.c.halves import HALVES, LOAD_WORD, saturate_word
from sterna.codegen.c.types import (
    float_literal,
    int_literal,
    int_range,
    is_odd,
    is_small,
    unsigned_type,
    value_type,
)
from sterna.codegen.symbols import TASKS_OF_A_THREAD
from sterna.support.dtype import DataType

HOST = """\
struct sterna_host {
  uint64_t size;
  int (*set_error)(const char *kind, const char *message);
  int (*parallel)(int (*body)(int32_t task, int32_t tasks, void *data), void *data, int32_t tasks);
  int (*num_threads)(int32_t *out);
  void *(*allocate)(uint64_t bytes, uint64_t alignment);
  void (*release)(void *block);
  int (*call)(void *site, const void *args, int32_t n, int32_t wanted, void *ret);
};"""

FAIL = """\
#if defined(__GNUC__) && defined(__ELF__)
extern void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message)
    __attribute__((weak));
#endif

static int32_t sterna_fail(const char *kind, const char *message) {
  const struct sterna_host *host = (const struct sterna_host *)__sterna__host;
  if (host) {
    host->set_error(kind, message);
    return -1;
  }
#if defined(__GNUC__) && defined(__ELF__)
  if (TVMFFIErrorSetRaisedFromCStr) TVMFFIErrorSetRaisedFromCStr(kind, message);
#endif
  return -1;
}"""

MESSAGE = """\
static char *sterna_put_text(char *at, const char *text) {
  while ((*at = *text++) != 0) at++;
  return at;
}

static char *sterna_put_number(char *at, int64_t value) {
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value, unit = 1;
  if (value < 0) *at++ = '-';
  while (rest / unit > 9) unit *= 10;
  for (; unit > 0; unit /= 10) *at++ = (char)('0' + rest / unit % 10);
  return at;
}"""

# Who wants to know what each kernel takes defines STERNA_PROFILE, and this function.
SHARED = """\
/* A function that several layers call: copies of it would fill the memory that it spares. */
#if defined(__GNUC__)
#define STERNA_SHARED __attribute__((noinline))
#else
#define STERNA_SHARED
#endif"""

BEGINS = """\
#if defined(STERNA_PROFILE)
extern void sterna_kernel_begins(int32_t number);
#define STERNA_BEGINS(number) sterna_kernel_begins(number)
#else
#define STERNA_BEGINS(number)
#endif"""

PARALLEL = f"""\
static int32_t sterna_parallel(int (*body)(int32_t, int32_t, void *), void *data, int64_t extent) {{
  const struct sterna_host *host = (const struct sterna_host *)__sterna__host;
  int32_t tasks = 1;
  if (extent <= 0) return 0;
  if (host && host->num_threads(&tasks) != 0) return -1;
  if (!host || tasks <= 1 || extent == 1) return body(0, 1, data);
  tasks *= {TASKS_OF_A_THREAD};
  if (tasks > extent) tasks = (int32_t)extent;
  return host->parallel(body, data, tasks) == 0 ? 0 : -1;
}}"""

ALLOCATE = """\
static void *sterna_allocate(uint64_t bytes, uint64_t alignment) {
  const struct sterna_host *host = (const struct sterna_host *)__sterna__host;
  void *block = host ? host->allocate(bytes ? bytes : 1, alignment) : 0;
  if (!block) sterna_fail("MemoryError", "there is no memory for an intermediate result");
  return block;
}

static void sterna_release_block(void *block) {
  ((const struct sterna_host *)__sterna__host)->release(block);
}"""

ANY = """\
typedef struct {
  int32_t type_index;
  uint32_t zero;
  union {
    int64_t v_int64;
    double v_float64;
    void *v_ptr;
  } value;
} sterna_any;"""

TENSOR = """\
typedef struct {
  void *data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} sterna_tensor;"""

# A tensor view is the address itself; an array object has a header of 24 bytes before it.
ANY_TENSOR = """\
static void *sterna_any_tensor(const void *args, int64_t i) {
  const sterna_any *any = (const sterna_any *)args + i;
  return any->type_index == 7 ? any->value.v_ptr : (void *)((char *)any->value.v_ptr + 24);
}"""

PREFETCH = """\
#if defined(__GNUC__)
#define STERNA_PREFETCH(address) __builtin_prefetch(address)
#else
#define STERNA_PREFETCH(address) ((void)(address))
#endif"""

CALL = """\
struct sterna_call_site {
  const char *caller;
  const char *name;
  void **library_ctx;
  uint64_t module_id;
  void *function;
};

#if defined(__GNUC__) && defined(__ELF__)
extern void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t n)
    __attribute__((weak));
extern int TVMFFIEnvModLookupFromImports(void *library_ctx, const char *name, void **out)
    __attribute__((weak));
extern int TVMFFIFunctionCall(void *function, void *args, int32_t n, void *ret)
    __attribute__((weak));
extern int TVMFFIObjectDecRef(void *object) __attribute__((weak));

static int32_t sterna_complain(const struct sterna_call_site *site, const char *kind,
                               const char *reason) {
  const char *parts[4] = {site->caller, " calls '", site->name, reason};
  if (TVMFFIErrorSetRaisedFromCStrParts) TVMFFIErrorSetRaisedFromCStrParts(kind, parts, 4);
  return -1;
}

/* Through TVM's functions, where there is no host of ours. */
static int32_t sterna_foreign_call(struct sterna_call_site *site, sterna_any *args, int32_t n,
                                   int32_t wanted, sterna_any *ret) {
  /* There all modules of a file are one, and the file's variable points to it. */
  void *module = *site->library_ctx ? *site->library_ctx : __tvm_ffi__library_ctx;
  void *function = 0;
  int32_t whole;
  if (!TVMFFIEnvModLookupFromImports || !module)
    return sterna_complain(site, "RuntimeError",
                           "', but nothing in this process finds functions by name");
  if (TVMFFIEnvModLookupFromImports(module, site->name, &function) != 0)
    return sterna_complain(
        site, "ValueError",
        "', but no function of that name is registered or among the imports of its module");
  if (TVMFFIFunctionCall(function, args, n, ret) != 0) return -1;
  whole = ret->type_index == 1 || ret->type_index == 2;
  if (ret->type_index == wanted || (wanted == 1 && whole)) return 0;
  if (wanted == 3 && whole) {
    ret->value.v_float64 = (double)ret->value.v_int64;
    return 0;
  }
  if (wanted == 4 && ret->type_index == 0) {
    ret->value.v_int64 = 0;
    return 0;
  }
  if (ret->type_index >= 64) TVMFFIObjectDecRef(ret->value.v_ptr);
  if (wanted == 0) return 0;
  return sterna_complain(site, "TypeError",
                         "', which returned a value of another kind than is needed there");
}
#endif

static int32_t sterna_call(struct sterna_call_site *site, sterna_any *args, int32_t n,
                           int32_t wanted, sterna_any *ret) {
  const struct sterna_host *host = (const struct sterna_host *)__sterna__host;
  ret->type_index = 0;
  ret->zero = 0;
  ret->value.v_int64 = 0;
  if (host && host->size >= sizeof *host) return host->call(site, args, n, wanted, ret);
  if (host)
    return sterna_fail("RuntimeError",
                       "the code calls functions by name, which needs a newer Sterna runtime");
#if defined(__GNUC__) && defined(__ELF__)
  return sterna_foreign_call(site, args, n, wanted, ret);
#else
  return -1;
#endif
}"""

# Other threads may change the other bits of the byte.
STORE_BITS = """\
static void sterna_store_bits(uint8_t *byte, uint8_t mask, uint8_t bits) {
#if defined(__GNUC__)
  __atomic_fetch_and(byte, (uint8_t)~mask, __ATOMIC_RELAXED);
  __atomic_fetch_or(byte, bits, __ATOMIC_RELAXED);
#else
#define STERNA_ONE_THREAD /* other threads could not be told: there must be none */
  *byte = (uint8_t)((*byte & ~mask) | bits);
#endif
}"""

LOAD_SHARED = """\
static uint8_t sterna_load_shared(const uint8_t *byte) {
#if defined(__GNUC__)
  return __atomic_load_n(byte, __ATOMIC_RELAXED);
#else
  return *byte;
#endif
}"""

_FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    "store_bits": ((), STORE_BITS),
    "load_shared": ((), LOAD_SHARED),
    "host": ((), HOST),
    "fail": (("host",), FAIL),
    "message": ((), MESSAGE),
    "parallel": (("host",), PARALLEL),
    "allocate": (("host", "fail"), ALLOCATE),
    "any": ((), ANY),
    "tensor": ((), TENSOR),
    "any_tensor": (("any",), ANY_TENSOR),
    "check_array": (("fail", "any_tensor", "tensor"), CHECK_ARRAY),
    "call": (("host", "fail", "any"), CALL),
    "prefetch": ((), PREFETCH),
    "begins": ((), BEGINS),
    "shared": ((), SHARED),
    "load_word": ((), LOAD_WORD),
    **{name: ((), text) for name, text in HALVES.items()},
}


def _low_bits(text: str, t: DataType) -> str:
    """A number as an integer type holds it."""
    return f"sterna_wrap_{t}({text})" if is_odd(t) else f"({value_type(t)})({text})"


def _wrap(t: DataType) -> str:
    c, u = value_type(t), unsigned_type(t)
    mask = int_literal((1 << t.bits) - 1, DataType(u.removesuffix("_t")))
    result = "x"
    if t.is_int:
        sign = int_literal(1 << t.bits - 1, DataType(u.removesuffix("_t")))
        result = f"((int{u[4:]})(x ^ {sign}) - (int{u[4:]}){sign})"
    return f"""\
static {c} sterna_wrap_{t}({u} x) {{
  x &= {mask};
  return ({c}){result};
}}"""


def _floordiv(t: DataType) -> str:
    c = value_type(t)
    return f"""\
static {c} sterna_floordiv_{t}({c} a, {c} b) {{
  if (b == -1) return {_low_bits(f"0u - ({unsigned_type(t)})a", t)};
  return ({c})(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}}"""


def _floormod(t: DataType) -> str:
    c = value_type(t)
    return f"""\
static {c} sterna_floormod_{t}({c} a, {c} b) {{
  {c} r = b == -1 ? 0 : ({c})(a % b);
  return ({c})(r != 0 && (r < 0) != (b < 0) ? r + b : r);
}}"""


def _truncdiv(t: DataType) -> str:
    c = value_type(t)
    return f"""\
static {c} sterna_truncdiv_{t}({c} a, {c} b) {{
  return ({c})(b == -1 ? {_low_bits(f"0u - ({unsigned_type(t)})a", t)} : a / b);
}}"""


def _truncmod(t: DataType) -> str:
    c = value_type(t)
    return f"""\
static {c} sterna_truncmod_{t}({c} a, {c} b) {{
  return ({c})(b == -1 ? 0 : a % b);
}}"""


def _extreme(sign: str) -> Callable[[DataType], str]:
    name = "min" if sign == "<" else "max"
    return lambda t: f"""\
static {value_type(t)} sterna_{name}_{t}({value_type(t)} a, {value_type(t)} b) {{
  return a {sign} b ? a : b;
}}"""


def _popcount(t: DataType) -> str:
    return f"""\
static {value_type(t)} sterna_popcount_{t}({value_type(t)} a) {{
  uint64_t rest = (uint64_t)a & {int_literal((1 << t.bits) - 1, DataType("uint64"))};
  int32_t count = 0;
  for (; rest; rest &= rest - 1) count++;
  return ({value_type(t)})count;
}}"""


def _clz(t: DataType) -> str:
    return f"""\
static {value_type(t)} sterna_clz_{t}({value_type(t)} a) {{
  uint64_t rest = (uint64_t)a & {int_literal((1 << t.bits) - 1, DataType("uint64"))};
  int32_t count = {t.bits};
  for (; rest; rest >>= 1) count--;
  return ({value_type(t)})count;
}}"""


_BY_TYPE: dict[str, Callable[[DataType], str]] = {
    "wrap": _wrap,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "min": _extreme("<"),
    "max": _extreme(">"),
    "popcount": _popcount,
    "clz": _clz,
}


# ---- conversions ----


def _saturate(source: str, t: DataType) -> str:
    c = value_type(t)
    low, high = int_range(t)
    least, most = int_literal(low, t), int_literal(high, t)
    lines = []
    if source == "double":
        # The first number that is too large has an exact double; the largest good one may not.
        lines += [
            "if (x != x) return 0;",
            f"if (x <= {float_literal(float(low), DataType('float64'))}) return {least};",
            f"if (x >= {float_literal(float(high + 1), DataType('float64'))}) return {most};",
        ]
    elif source == "int64_t":
        if low > -(2**63):
            lines.append(f"if (x < {low}) return {least};")
        if high < 2**63 - 1:
            lines.append(f"if (x > {high}) return {most};")
    elif high < 2**64 - 1:
        lines.append(f"if (x > {int_literal(high, DataType('uint64'))}) return {most};")
    body = "\n  ".join([*lines, f"return ({c})x;"])
    return f"static {c} {saturate_name(source, t)}({source} x) {{\n  {body}\n}}"


def saturate_name(source: str, target: DataType) -> str:
    """The function that holds a double, int64_t or uint64_t within a type's range."""
    return f"sterna_saturate_{source.removesuffix('_t')}_to_{target}"


def bits_name(source: DataType, target: DataType) -> str:
    """The function that reads the bits of one type as another."""
    return f"sterna_bits_{source}_as_{target}"


def _bits(source: DataType, target: DataType) -> str:
    a, b = value_type(source), value_type(target)
    return f"""\
static {b} {bits_name(source, target)}({a} x) {{
  {b} y;
  memcpy(&y, &x, sizeof y);
  return y;
}}"""


_SMALL = {
    "value": small_floats.value_text,
    "bits": small_floats.bits_text,
    "round": small_floats.round_text,
    "clamp": small_floats.clamp_text,
}


class Helpers:
    """The helpers that a file uses, in an order in which each stands after those it needs."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def text(self) -> list[str]:
        """Their definitions."""
        return list(self._texts.values())

    @property
    def needs_host(self) -> bool:
        """Whether one of them asks the host for something."""
        return any("__sterna__host" in text for text in self._texts.values())

    def _add(self, name: str, text: str) -> str:
        self._texts.setdefault(name, text)
        return name

    def fixed(self, name: str) -> None:
        """One of the helpers that no type varies."""
        needs, text = _FIXED[name]
        for other in needs:
            self.fixed(other)
        self._add(name, text)

    def typed(self, name: str, dtype: DataType) -> str:
        """A function of one type, such as min; its C name."""
        element = dtype.element
        # Small floats are held as floats.
        if is_small(element):
            element = DataType("float32")
        if is_odd(element):
            self._add(f"sterna_wrap_{element}", _wrap(element))
        return self._add(f"sterna_{name}_{element}", _BY_TYPE[name](element))

    def small(self, what: str, dtype: DataType) -> str:
        """The value, bits, round or clamp function of a small float."""
        element = dtype.element
        if what == "round":
            self.small("value", element)
            self.small("bits", element)
        return self._add(f"sterna_{element}_{what}", _SMALL[what](element))

    def exact(self, dtype: DataType) -> str:
        """The function that makes a double of a 64-bit integer, for rounding it further."""
        return self._add(f"sterna_exact_{dtype.element}", small_floats.exact_text(dtype.element))

    def saturate(self, source: DataType, target: DataType) -> str:
        """The function that holds a number within a type's range."""
        if source == "int32" and target in ("int8", "int16"):
            return self.shifted(target, 0)
        wide = "double" if source.is_float else "uint64_t" if source.is_uint else "int64_t"
        return self._add(saturate_name(wide, target.element), _saturate(wide, target.element))

    def shifted(self, target: DataType, shift: int) -> str:
        """The function that holds an int32, shifted to the right, within a narrower type."""
        name = saturate_name("int32_t", target) + (f"_{shift}" if shift else "")
        return self._add(name, saturate_word(name, target.bits, shift))

    def bits(self, source: DataType, target: DataType) -> str:
        """The function that reads the bits of one type as another of the same size."""
        return self._add(bits_name(source, target), _bits(source, target))

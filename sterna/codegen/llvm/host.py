"""What compiled code asks of whoever loaded it: errors, threads, memory, functions by name.

A module exports the variable __sterna__host. Its loader puts there the address of

    struct sterna_host {
      uint64_t size;
      int (*set_error)(const char *kind, const char *message);
      int (*parallel)(int (*body)(int32_t task, int32_t tasks, void *data), void *data,
                      int32_t tasks);
      int (*num_threads)(int32_t *out);
      void *(*allocate)(uint64_t bytes, uint64_t alignment);
      void (*release)(void *block);
      int (*call)(struct sterna_call_site *site, const sterna_any *args, int32_t n, int32_t wanted,
                  sterna_any *ret);
    };

and without one the code still runs: in one thread, with malloc if the process has it, and with
errors and functions through TVM's C functions if the process has those.
"""

from sterna.codegen.llvm.emitter import ATTRIBUTES, MAKES_ERRORS, ModuleWriter
from sterna.codegen.llvm.foreign import foreign_call
from sterna.codegen.llvm.layouts import HOST_TABLE
from sterna.codegen.llvm.types import value_type
from sterna.codegen.symbols import HOST, NEEDS, TASKS_OF_A_THREAD
from sterna.support.dtype import DataType

MESSAGE_BYTES = 1024
"""The longest message that is made while the code runs."""
NUMBER_BYTES = 20
"""The longest number in it."""
_SET_ERROR, _PARALLEL, _NUM_THREADS, _ALLOCATE, _RELEASE, _CALL = range(1, 7)

_TOO_OLD = "the code calls functions by name, which needs a newer Sterna runtime"


def define_host(module: ModuleWriter) -> None:
    """Exports the variable, and what the code needs of a processor."""
    module.loader_variable(HOST)
    if module.options.needs:
        module.shared_text(NEEDS, module.options.needs)


def _member(number: int) -> str:
    return f"""\
  %slot = getelementptr inbounds {HOST_TABLE}, ptr %host, i32 0, i32 {number}
  %function = load ptr, ptr %slot"""


def fail(module: ModuleWriter) -> str:
    """i32 (ptr kind, ptr message): sets the error and returns -1."""

    def write() -> str:
        other = "ret i32 -1"
        if module.is_elf:
            weak = module.declare(
                "TVMFFIErrorSetRaisedFromCStr", "void", "ptr, ptr", "extern_weak "
            )
            other = f"""\
%missing = icmp eq ptr {weak}, null
  br i1 %missing, label %done, label %foreign
foreign:
  call void {weak}(ptr %kind, ptr %message)
  ret i32 -1
done:
  ret i32 -1"""
        return f"""\
  %host = load ptr, ptr @{HOST}
  %alone = icmp eq ptr %host, null
  br i1 %alone, label %without, label %with
with:
{_member(_SET_ERROR)}
  call i32 %function(ptr %kind, ptr %message)
  ret i32 -1
without:
  {other}
"""

    return module.support(
        "sterna.fail", "i32", "ptr %kind, ptr %message", MAKES_ERRORS, write
    )


def number_type(module: ModuleWriter) -> DataType:
    """The type of numbers in messages: one that the processor divides without a library."""
    return DataType("int64" if module.pointer_bits == 64 else "int32")


def put_text(module: ModuleWriter) -> str:
    """ptr (ptr at, ptr text): copies text with its zero, returns the address of that zero."""

    def write() -> str:
        return f"""\
define internal ptr @"sterna.put_text"(ptr %at, ptr %text) {MAKES_ERRORS} {{
entry:
  br label %copy
copy:
  %from = phi ptr [ %text, %entry ], [ %from.next, %more ]
  %to = phi ptr [ %at, %entry ], [ %to.next, %more ]
  %char = load i8, ptr %from
  store i8 %char, ptr %to
  %end = icmp eq i8 %char, 0
  br i1 %end, label %done, label %more
more:
  %from.next = getelementptr i8, ptr %from, i32 1
  %to.next = getelementptr i8, ptr %to, i32 1
  br label %copy
done:
  ret ptr %to
}}
"""

    return module.helper("sterna.put_text", write)


def put_number(module: ModuleWriter) -> str:
    """ptr (ptr at, number): writes a number's digits, returns the address after them."""

    def write() -> str:
        kind = value_type(number_type(module))
        return f"""\
define internal ptr @"sterna.put_number"(ptr %at, {kind} %value) {MAKES_ERRORS} {{
entry:
  %below = icmp slt {kind} %value, 0
  br i1 %below, label %minus, label %plain
minus:
  store i8 45, ptr %at
  %after = getelementptr i8, ptr %at, i32 1
  %opposite = sub {kind} 0, %value
  br label %plain
plain:
  %begin = phi ptr [ %at, %entry ], [ %after, %minus ]
  %size = phi {kind} [ %value, %entry ], [ %opposite, %minus ]
  br label %scale
scale:
  %power = phi {kind} [ 1, %plain ], [ %larger, %grow ]
  %quotient = udiv {kind} %size, %power
  %more = icmp ugt {kind} %quotient, 9
  br i1 %more, label %grow, label %digits
grow:
  %larger = mul {kind} %power, 10
  br label %scale
digits:
  %to = phi ptr [ %begin, %scale ], [ %next, %digits ]
  %rest = phi {kind} [ %size, %scale ], [ %smaller, %digits ]
  %unit = phi {kind} [ %power, %scale ], [ %lower, %digits ]
  %digit = udiv {kind} %rest, %unit
  %smaller = urem {kind} %rest, %unit
  %narrow = trunc {kind} %digit to i8
  %char = add i8 %narrow, 48
  store i8 %char, ptr %to
  %next = getelementptr i8, ptr %to, i32 1
  %lower = udiv {kind} %unit, 10
  %last = icmp eq {kind} %lower, 0
  br i1 %last, label %done, label %digits
done:
  ret ptr %next
}}
"""

    return module.helper("sterna.put_number", write)


def parallel(module: ModuleWriter) -> str:
    """i32 (ptr body, ptr data, i64 extent): runs the tasks of a parallel loop."""

    def write() -> str:
        return f"""\
  %threads.slot = alloca i32, align 4
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %start, label %nothing
nothing:
  ret i32 0
start:
  %host = load ptr, ptr @{HOST}
  %alone = icmp eq ptr %host, null
  %one = icmp eq i64 %extent, 1
  %serial = or i1 %alone, %one
  br i1 %serial, label %direct, label %with
direct:
  %direct.result = call i32 %body(i32 0, i32 1, ptr %data)
  ret i32 %direct.result
with:
{_member(_NUM_THREADS)}
  store i32 1, ptr %threads.slot
  %failed = call i32 %function(ptr %threads.slot)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %error, label %go
error:
  ret i32 -1
go:
  %threads = load i32, ptr %threads.slot
  %single = icmp sle i32 %threads, 1
  br i1 %single, label %direct, label %share
share:
  %most = mul i32 %threads, {TASKS_OF_A_THREAD}
  %most.wide = sext i32 %most to i64
  %fewer = icmp slt i64 %extent, %most.wide
  %narrow = trunc i64 %extent to i32
  %tasks = select i1 %fewer, i32 %narrow, i32 %most
  %p.slot = getelementptr inbounds {HOST_TABLE}, ptr %host, i32 0, i32 {_PARALLEL}
  %p.function = load ptr, ptr %p.slot
  %result = call i32 %p.function(ptr %body, ptr %data, i32 %tasks)
  ret i32 %result
"""

    return module.support(
        "sterna.parallel", "i32", "ptr %body, ptr %data, i64 %extent", ATTRIBUTES, write
    )


def allocate(module: ModuleWriter) -> str:
    """ptr (i64 bytes): memory on a 64-byte boundary, or null."""

    def write() -> str:
        other = "ret ptr null"
        if module.is_elf:
            size = module.index_type
            weak = module.declare("malloc", "ptr", size, "extern_weak ")
            narrow = "" if size == "i64" else f"\n  %size = trunc i64 %more to {size}"
            amount = "%more" if size == "i64" else "%size"
            # The block's own address stands just before the part that is used.
            other = f"""\
%missing = icmp eq ptr {weak}, null
  br i1 %missing, label %none, label %libc
none:
  ret ptr null
libc:
  %more = add i64 %bytes, 80{narrow}
  %block = call ptr {weak}({size} {amount})
  %empty = icmp eq ptr %block, null
  br i1 %empty, label %none, label %align
align:
  %address = ptrtoint ptr %block to {size}
  %past = add {size} %address, 79
  %rounded = and {size} %past, -64
  %used = inttoptr {size} %rounded to ptr
  %before = getelementptr inbounds ptr, ptr %used, i32 -1
  store ptr %block, ptr %before
  ret ptr %used"""
        return f"""\
  %host = load ptr, ptr @{HOST}
  %alone = icmp eq ptr %host, null
  br i1 %alone, label %without, label %with
with:
{_member(_ALLOCATE)}
  %result = call ptr %function(i64 %bytes, i64 64)
  ret ptr %result
without:
  {other}
"""

    return module.support(
        "sterna.allocate", "ptr", "i64 %bytes", f"noinline {ATTRIBUTES}", write
    )


def release(module: ModuleWriter) -> str:
    """void (ptr): gives back what allocate gave."""

    def write() -> str:
        other = "ret void"
        if module.is_elf:
            weak = module.declare("free", "void", "ptr", "extern_weak ")
            other = f"""\
%before = getelementptr inbounds ptr, ptr %used, i32 -1
  %block = load ptr, ptr %before
  call void {weak}(ptr %block)
  ret void"""
        return f"""\
  %host = load ptr, ptr @{HOST}
  %alone = icmp eq ptr %host, null
  br i1 %alone, label %without, label %with
with:
{_member(_RELEASE)}
  call void %function(ptr %used)
  ret void
without:
  {other}
"""

    return module.support(
        "sterna.release", "void", "ptr %used", f"noinline {ATTRIBUTES}", write
    )


def call(module: ModuleWriter) -> str:
    """i32 (ptr site, ptr args, i32 n, i32 wanted, ptr ret): calls a function by name."""

    def write() -> str:
        kind, text = module.string("RuntimeError"), module.string(_TOO_OLD)
        parameters = "ptr %site, ptr %args, i32 %n, i32 %wanted, ptr %ret"
        return f"""\
define internal i32 @"sterna.call"({parameters}) noinline {ATTRIBUTES} {{
  %host = load ptr, ptr @{HOST}
  %alone = icmp eq ptr %host, null
  br i1 %alone, label %without, label %with
with:
  %size = load i64, ptr %host
  %end = getelementptr {HOST_TABLE}, ptr null, i32 1
  %needed = ptrtoint ptr %end to i64
  %known = icmp uge i64 %size, %needed
  br i1 %known, label %go, label %old
go:
{_member(_CALL)}
  %result = call i32 %function(ptr %site, ptr %args, i32 %n, i32 %wanted, ptr %ret)
  ret i32 %result
old:
  %told = call i32 {fail(module)}(ptr {kind}, ptr {text})
  ret i32 -1
without:
  %other = call i32 {foreign_call(module)}(ptr %site, ptr %args, i32 %n, i32 %wanted, ptr %ret)
  ret i32 %other
}}
"""

    return module.helper("sterna.call", write)

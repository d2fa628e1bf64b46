"""FFI without a host of ours: calls of functions by name through TVM's C functions.

There all modules of a file are one, and the file's variable points to it.
"""

from sterna.codegen.llvm.emitter import COLD, ModuleWriter
from sterna.codegen.llvm.layouts import ANY, CALL_SITE
from sterna.codegen.symbols import LIBRARY_CONTEXT

_MISSING = "', but no function of that name is registered or among the imports of its module"
_NOBODY = "', but nothing in this process finds functions by name"
_WRONG = "', which returned a value of another kind than is needed there"


def foreign_call(module: ModuleWriter) -> str:
    """i32 (ptr site, ptr args, i32 n, i32 wanted, ptr ret): calls a function of TVM's registry."""
    return module.helper("sterna.foreign", lambda: _write(module))


def _write(module: ModuleWriter) -> str:
    parameters = "ptr %site, ptr %args, i32 %n, i32 %wanted, ptr %ret"
    head = f'define internal i32 @"sterna.foreign"({parameters})'
    if not module.is_elf:  # other systems have no symbols that may be missing
        return f"{head} {COLD} {{\n  ret i32 -1\n}}\n"

    def weak(name: str, result: str, parameters: str) -> str:
        return module.declare(name, result, parameters, "extern_weak ")

    raise_error = weak("TVMFFIErrorSetRaisedFromCStrParts", "void", "ptr, ptr, i32")
    look_up = weak("TVMFFIEnvModLookupFromImports", "i32", "ptr, ptr, ptr")
    run = weak("TVMFFIFunctionCall", "i32", "ptr, ptr, i32, ptr")
    release = weak("TVMFFIObjectDecRef", "i32", "ptr")

    def complain(label: str, kind: str, reason: str) -> str:
        """Raises: the caller, " calls '", the name, and the reason."""
        texts = ["%caller", module.string(" calls '"), "%name", module.string(reason)]
        stores = "\n".join(
            f"  %{label}.{i} = getelementptr inbounds ptr, ptr %parts, i32 {i}\n"
            f"  store ptr {text}, ptr %{label}.{i}"
            for i, text in enumerate(texts)
        )
        return f"""\
{label}:
{stores}
  call void {raise_error}(ptr {module.string(kind)}, ptr %parts, i32 {len(texts)})
  br label %failed"""

    return f"""\
{head} {COLD} {{
  %parts = alloca [4 x ptr], align 8
  %found = alloca ptr, align 8
  store {ANY} zeroinitializer, ptr %ret
  %caller = load ptr, ptr %site
  %name.slot = getelementptr inbounds {CALL_SITE}, ptr %site, i32 0, i32 1
  %name = load ptr, ptr %name.slot
  %context.slot = getelementptr inbounds {CALL_SITE}, ptr %site, i32 0, i32 2
  %context.variable = load ptr, ptr %context.slot
  %own = load ptr, ptr %context.variable
  %file = load ptr, ptr {module.loader_variable(LIBRARY_CONTEXT)}
  %has.own = icmp ne ptr %own, null
  %context = select i1 %has.own, ptr %own, ptr %file
  %silent = icmp eq ptr {raise_error}, null
  br i1 %silent, label %failed, label %ready
ready:
  %no.lookup = icmp eq ptr {look_up}, null
  %no.module = icmp eq ptr %context, null
  %no.finder = or i1 %no.lookup, %no.module
  br i1 %no.finder, label %nobody, label %look
look:
  %looked = call i32 {look_up}(ptr %context, ptr %name, ptr %found)
  %there = icmp eq i32 %looked, 0
  br i1 %there, label %run, label %missing
run:
  %function = load ptr, ptr %found
  %ran = call i32 {run}(ptr %function, ptr %args, i32 %n, ptr %ret)
  %fine = icmp eq i32 %ran, 0
  br i1 %fine, label %check, label %failed
check:
  %kind = load i32, ptr %ret
  %payload = getelementptr inbounds {ANY}, ptr %ret, i32 0, i32 2
  %is.int = icmp eq i32 %kind, 1
  %is.bool = icmp eq i32 %kind, 2
  %whole = or i1 %is.int, %is.bool
  %wants.int = icmp eq i32 %wanted, 1
  %fits.int = and i1 %wants.int, %whole
  %same = icmp eq i32 %kind, %wanted
  %fits = or i1 %same, %fits.int
  br i1 %fits, label %done, label %convert
convert:
  %wants.float = icmp eq i32 %wanted, 3
  %widens = and i1 %wants.float, %whole
  br i1 %widens, label %widen, label %other
widen:
  %integer = load i64, ptr %payload
  %float = sitofp i64 %integer to double
  store double %float, ptr %payload
  br label %done
other:
  %is.none = icmp eq i32 %kind, 0
  %wants.pointer = icmp eq i32 %wanted, 4
  %is.null = and i1 %is.none, %wants.pointer
  br i1 %is.null, label %null, label %drop
null:
  store i64 0, ptr %payload
  br label %done
drop:
  %is.object = icmp sge i32 %kind, 64
  br i1 %is.object, label %release, label %dropped
release:
  %object = load ptr, ptr %payload
  %released = call i32 {release}(ptr %object)
  br label %dropped
dropped:
  %wants.nothing = icmp eq i32 %wanted, 0
  br i1 %wants.nothing, label %done, label %wrong
done:
  ret i32 0
failed:
  ret i32 -1
{complain("nobody", "RuntimeError", _NOBODY)}
{complain("missing", "ValueError", _MISSING)}
{complain("wrong", "TypeError", _WRONG)}
}}
"""

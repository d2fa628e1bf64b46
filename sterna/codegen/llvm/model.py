"""Object files that hold a model: its data, and what announces it in a program."""

from collections.abc import Sequence

import llvmlite.binding as llvm

from sterna.codegen.llvm import host
from sterna.codegen.llvm.emitter import ATTRIBUTES, ModuleWriter
from sterna.codegen.llvm.machine import LOCK, LLVMOptions, create_machine, data_layout
from sterna.codegen.llvm.types import symbol
from sterna.codegen.symbols import HOST, LEVELS, MODEL_SYMBOL, PACKED_PREFIX

ALIGNMENT = 64

# LLVM would take long to read large data as text. So it writes zeros behind a mark, which takes no
# time, and the bytes are put in their place.
_MARK = b"here the bytes of the data begin"


def model_object(
    options: LLVMOptions, name: str, size: int, own_symbol: str = ""
) -> tuple[bytearray, int]:
    """An object file with room for a model's data, and where in the file that is.

    own_symbol: what stands for the name in the data's symbol, if it is another.
    """
    if data_layout(options).startswith("E"):
        raise ValueError(f"a model is written for little-endian machines, not {options.triple}")
    if size < len(_MARK):
        raise ValueError(f"a model has at least {len(_MARK)} bytes, not {size}")
    module = ModuleWriter(options, "model")
    export, weak = ("dllexport ", "dllexport ") if module.is_coff else ("", "weak ")
    mark, rest = f"[{len(_MARK)} x i8]", f"[{size - len(_MARK)} x i8]"
    module.globals += [
        f"{symbol(f'{MODEL_SYMBOL}_{own_symbol or name}')} = {export}constant "
        f"<{{ {mark}, {rest} }}> "
        f'<{{ {mark} c"{_MARK.decode()}", {rest} zeroinitializer }}>, align {ALIGNMENT}',
        f'{symbol(MODEL_SYMBOL)} = {weak}constant [{len(name) + 1} x i8] c"{name}\\00"',
    ]
    made = bytearray(_compile(module))
    return made, made.index(_MARK)


def model_place_object(options: LLVMOptions, name: str) -> bytes:
    """An object file with the symbol of a model whose data is put behind the linked library.

    Its note keeps a program header free for that; see support/elf_segment.py.
    """
    module = ModuleWriter(options, "model")
    if not module.is_elf:
        raise ValueError(f"data of 2 GiB and more goes into libraries of ELF, not {options.triple}")
    module.globals += [
        f"{symbol(f'{MODEL_SYMBOL}_{name}')} = constant i64 0, align {ALIGNMENT}",
        f'{symbol(MODEL_SYMBOL)} = weak constant [{len(name) + 1} x i8] c"{name}\\00"',
        '@note = internal constant <{ i32, i32, i32, [8 x i8] }> '
        '<{ i32 7, i32 0, i32 1, [8 x i8] c"sterna\\00\\00" }>, section ".note.sterna", align 4',
        '@llvm.used = appending global [1 x ptr] [ptr @note], section "llvm.metadata"',
    ]
    return _compile(module)


def levels_object(options: LLVMOptions, levels: Sequence[tuple[str, str]]) -> bytes:
    """An object file that says which levels a file holds code for, and what each needs."""
    module = ModuleWriter(options, "levels")
    module.shared_text(LEVELS, "".join(f"{name} {needs};" for name, needs in levels))
    return _compile(module)


def linked_model_object(options: LLVMOptions, name: str, functions: Sequence[str]) -> bytes:
    """An object file that announces a model when the program that it is linked into starts."""
    module = ModuleWriter(options, "linked model")
    host.define_host(module)
    entries = []
    for function in functions:
        module.declare(PACKED_PREFIX + function, "i32", "ptr, ptr, i32, ptr")
        entries.append(
            f"{{ ptr, ptr }} {{ ptr {module.string(function)}, "
            f"ptr {symbol(PACKED_PREFIX + function)} }}"
        )
    size, data = module.index_type, symbol(f"{MODEL_SYMBOL}_{name}")
    module.globals += [
        f"{data} = external constant i8",
        f"@functions = internal constant [{len(entries)} x {{ ptr, ptr }}] [{', '.join(entries)}]",
        f"@model = internal global {{ ptr, ptr, ptr, ptr, {size}, ptr }} {{ ptr null, "
        f"ptr {module.string(name)}, ptr {data}, ptr @functions, {size} {len(entries)}, "
        f"ptr @{HOST} }}",
        *_at_start(module, "@announce"),
    ]
    # Without the runtime in the program there is nobody to tell.
    register = module.declare(
        "sterna_register_model", "void", "ptr", "extern_weak " if module.is_elf else ""
    )
    module.functions.append(f"""\
define internal void @announce() {ATTRIBUTES} {{
  %missing = icmp eq ptr {register}, null
  br i1 %missing, label %done, label %tell
tell:
  call void {register}(ptr @model)
  br label %done
done:
  ret void
}}
""")
    return _compile(module)


def _at_start(module: ModuleWriter, function: str) -> list[str]:
    """What lets a program call a function before anything else."""
    if module.is_elf:  # by its name: LLVM itself would use .ctors, which not every linker knows
        return [
            f'@at_start = internal constant ptr {function}, section ".init_array"',
            '@llvm.used = appending global [1 x ptr] [ptr @at_start], section "llvm.metadata"',
        ]
    return [
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] "
        f"[{{ i32, ptr, ptr }} {{ i32 65535, ptr {function}, ptr null }}]"
    ]


def _compile(module: ModuleWriter) -> bytes:
    with LOCK:
        machine = create_machine(module.options)
        made: bytes = machine.emit_object(llvm.parse_assembly(module.text(), llvm.create_context()))
        return made

"""Text of LLVM modules and functions, written line by line."""

from collections.abc import Callable
from enum import Enum

from sterna.codegen.llvm.machine import (
    Abilities,
    LLVMOptions,
    abilities,
    data_layout,
    has_atomics,
    object_format,
    pointer_bits,
)
from sterna.codegen.llvm.types import quoted, symbol

ATTRIBUTES = "#0"
COLD = "#1"
INLINE = "#2"
MAKES_ERRORS = "#3"
# Without no-builtins LLVM turns loops into calls of memset and memcpy, which we do not link. What
# makes errors runs at most once: LLVM need not spend time on it.
_ATTRIBUTE_TEXT = """\
attributes #0 = { nounwind "no-builtins" }
attributes #1 = { nounwind cold noinline "no-builtins" }
attributes #2 = { nounwind alwaysinline "no-builtins" }
attributes #3 = { nounwind cold noinline optnone "no-builtins" }
"""


class Support(Enum):
    """Where the functions that kernels share are, see support.py."""

    OWN = "in the module, for itself alone"
    DEFINED = "in the module, for all objects of the program"
    ELSEWHERE = "in another object of the program"


class ModuleWriter:
    """The text of a module: globals, functions, declarations and metadata, in order of need."""

    def __init__(self, options: LLVMOptions, name: str, support: Support = Support.OWN) -> None:
        self.options = options
        self.name = name
        self._support = support
        self.pointer_bits = pointer_bits(options)
        self.index_type = f"i{self.pointer_bits}"
        self.is_elf = object_format(options) == "ELF"
        self.is_coff = object_format(options) == "COFF"
        self.globals: list[str] = []
        self.functions: list[str] = []
        self._helpers: set[str] = set()
        self._declarations: dict[str, str] = {}
        self._strings: dict[str, str] = {}
        self._metadata: dict[str, int] = {}

    @property
    def abilities(self) -> Abilities:
        """What LLVM makes instructions of, not calls."""
        return abilities(self.options)

    @property
    def atomics(self) -> bool:
        """Whether several threads can change bits of one byte."""
        return has_atomics(self.options)

    @property
    def is_big_endian(self) -> bool:
        """Whether the first byte of a word has its highest bits."""
        return data_layout(self.options).startswith("E")

    def string(self, text: str) -> str:
        """The name of a constant text that ends in a zero."""
        name = self._strings.get(text)
        if name is None:
            name = f"@text.{len(self._strings)}"
            self._strings[text] = name
            data = text.encode() + b"\0"
            self.globals.append(
                f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{quoted(data)}"'
            )
        return name

    def loader_variable(self, name: str) -> str:
        """A pointer that a loader fills. It is weak, so that objects of one program share it."""
        align = f"align {self.pointer_bits // 8}"
        lines = [f"@{name} = weak global ptr null, {align}"]
        if self.is_coff:
            shared = f"@{name} = weak_odr dllexport global ptr null, comdat, {align}"
            lines = [f"${name} = comdat any", shared]
        if lines[0] not in self.globals:
            self.globals += lines
        return f"@{name}"

    def shared_text(self, name: str, text: str) -> None:
        """A text that loaders find; objects of one program share it."""
        content = f'[{len(text) + 1} x i8] c"{text}\\00"'
        if self.is_coff:
            self.globals += [
                f"${name} = comdat any",
                f"@{name} = weak_odr dllexport constant {content}, comdat",
            ]
        else:
            self.globals.append(f"@{name} = weak constant {content}")

    def declare(self, name: str, result: str, parameters: str, linkage: str = "") -> str:
        """The symbol of a function that is defined elsewhere, or of an intrinsic."""
        if name not in self._declarations:
            line = f"declare {linkage}{result} {symbol(name)}({parameters})"
            self._declarations[name] = line
        return symbol(name)

    def helper(self, name: str, write: Callable[[], str]) -> str:
        """The symbol of a function that is written when it is first needed."""
        if name not in self._helpers:
            self._helpers.add(name)
            self.functions.append(write())
        return symbol(name)

    def support(
        self, name: str, result: str, parameters: str, attributes: str, body: Callable[[], str]
    ) -> str:
        """The symbol of a function that the kernels of a program share."""
        head = f"{result} {symbol(name)}({parameters})"
        if self._support is Support.ELSEWHERE:
            self._declarations[name] = f"declare hidden {head}"
            return symbol(name)
        shared = self._support is Support.DEFINED
        comdat = " comdat" if shared and self.is_coff else ""
        if comdat and name not in self._helpers:
            self.globals.append(f"${symbol(name)[1:]} = comdat any")
        start = f"define {'weak_odr hidden' if shared else 'internal'} {head} {attributes}{comdat}"
        return self.helper(name, lambda: f"{start} {{\n{body()}}}\n")

    def metadata(self, text: str) -> str:
        """The number of a metadata node."""
        return f"!{self._metadata.setdefault(text, len(self._metadata))}"

    def distinct_loop(self, *properties: str) -> str:
        """A node that marks one loop."""
        number = len(self._metadata)
        listed = ", ".join([f"!{number}", *properties])
        self._metadata[f"distinct !{{{listed}}}"] = number
        return f"!{number}"

    def text(self) -> str:
        """The whole module."""
        parts = [
            f'source_filename = "{quoted(self.name.encode())}"',
            f'target datalayout = "{data_layout(self.options)}"',
            f'target triple = "{self.options.triple}"',
            "",
            *self.globals,
            "",
            *self.functions,
            *self._declarations.values(),
            "",
            self._attributes(),
            *[f"!{number} = {text}" for text, number in self._metadata.items()],
            "",
        ]
        return "\n".join(parts)

    def _attributes(self) -> str:
        order = self.options.instruction_order
        if not order:
            return _ATTRIBUTE_TEXT
        return _ATTRIBUTE_TEXT.replace(" }", f' "tune-cpu"="{order}" }}')


# Instructions that give the same result for the same operands, wherever in a block they stand.
_PURE = (
    "getelementptr ", "zext ", "sext ", "trunc ", "bitcast ", "insertelement ", "extractelement ",
    "shufflevector ", "add ", "sub ", "mul ", "shl ", "lshr ", "ashr ", "and ", "or ", "xor ",
    "icmp ", "select ", "fpext ", "fptrunc ", "sitofp ", "uitofp ", "fptosi ", "fptoui ",
)


# Instructions whose results begin again at 0 where their operand goes on.
_MASKED = ("and i8 ", "and i16 ", "and i32 ", "and i64 ")


class FunctionWriter:
    """The text of one function. Values are named by a counter."""

    def __init__(self, module: ModuleWriter) -> None:
        self.module = module
        self.block = "entry"
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._known: dict[str, str] = {}
        self._count = 0
        self.branches, self.masked = 0, 0
        """How many choices and how many bitwise ands of single integers it has so far."""

    def name(self) -> str:
        """A new name for a value."""
        self._count += 1
        return f"%v{self._count}"

    def label(self, hint: str) -> str:
        """A new name for a block."""
        self._count += 1
        return f"{hint}.{self._count}"

    def value(self, instruction: str) -> str:
        """Writes an instruction and names its result; a block computes what is pure once."""
        if (known := self._known.get(instruction)) is not None:
            return known
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {instruction}")
        self.masked += instruction.startswith(_MASKED)
        if instruction.startswith(_PURE):
            self._known[instruction] = name
        return name

    def emit(self, instruction: str) -> None:
        """Writes an instruction without a result."""
        self._lines.append("  " + instruction)

    def alloca(self, kind: str, align: int) -> str:
        """Memory in the function's frame."""
        self._count += 1
        name = f"%a{self._count}"
        self._allocas.append(f"  {name} = alloca {kind}, align {align}")
        return name

    def start(self, label: str) -> None:
        """Begins a block."""
        self._lines.append(f"{label}:")
        self.block = label
        self._known.clear()

    def jump(self, label: str) -> None:
        """Ends the block."""
        self.emit(f"br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str, likely: bool | None = None) -> None:
        """Ends the block with a choice."""
        hint = ""
        if likely is not None:
            weights = "i32 2000, i32 1" if likely else "i32 1, i32 2000"
            hint = ", !prof " + self.module.metadata(f'!{{!"branch_weights", {weights}}}')
        self.emit(f"br i1 {condition}, label %{then}, label %{otherwise}{hint}")
        self.branches += 1

    def intrinsic(self, name: str, result: str, *arguments: str, flags: str = "") -> str:
        """Calls an intrinsic; arguments are written with their types."""
        target = self.declare(name, result, arguments)
        called = f"call {flags} " if flags else "call "
        return self.value(f"{called}{result} {target}({', '.join(arguments)})")

    def declare(self, name: str, result: str, arguments: tuple[str, ...]) -> str:
        """Declares a function by the arguments of a call."""
        kinds = ", ".join(_type_of(argument) for argument in arguments)
        return self.module.declare(name, result, kinds)

    def text(self, signature: str) -> str:
        """The whole function."""
        return "\n".join([f"{signature} {{", "entry:", *self._allocas, *self._lines, "}", ""])


def _type_of(argument: str) -> str:
    """The type of "type operand": types may hold spaces, operands of intrinsics begin last."""
    if argument.startswith("<"):
        return argument[: argument.index(">") + 1]
    return argument.split(" ", 1)[0]

"""A network in C as its callers see it: a header, and the functions that it declares."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sterna.codegen.c.types import Names, float_literal, int_literal, storage_type
from sterna.support.dtype import DataType
from sterna.support.float_format import is_small_float

PER_LINE = 8

@dataclass(frozen=True, slots=True)
class Operand:
    """An input or output: what its caller calls it, and its bytes."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ConstantData:
    """A constant's elements: numbers, or their bits for types that C does not have."""

    name: str
    dtype: DataType
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Interface:
    """A network's function: static int32_t <entry>(inputs, constants, outputs, workspace)."""

    name: str
    entry: str
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]
    constants: Sequence[ConstantData]
    workspace_bytes: int
    alignment: int = 16
    constant_alignment: int = 16

    # ---- names ----

    @property
    def prefix(self) -> str:
        """What the names of everything begin with that a program sees."""
        return f"tvmgen_{self.name}"

    @property
    def macro(self) -> str:
        """The same in capitals."""
        return self.prefix.upper()

    def members(self, operands: Iterable[Operand], what: str) -> list[str]:
        """The members of a structure; two operands of one name in C are refused."""
        made: dict[str, str] = {}
        for operand in operands:
            name = Names().make(re.sub(r"\W", "_", operand.name, flags=re.ASCII))
            if name in made:
                raise ValueError(
                    f"the {what} '{made[name]}' and '{operand.name}' of {self.name} would both be "
                    f"{name} in C; rename one of them"
                )
            made[name] = operand.name
        return list(made)

    # ---- the header ----

    def header(self) -> str:
        """The text of tvmgen_<name>.h."""
        guard = f"{self.macro}_H_"
        inputs, outputs = self.members(self.inputs, "inputs"), self.members(self.outputs, "outputs")
        sections = [
            f'/* The network "{self.name}", made by Sterna. */',
            f"#ifndef {guard}\n#define {guard}",
            "#include <stdint.h>",
            '#ifdef __cplusplus\nextern "C" {\n#endif',
            self._sizes("Bytes of each input.", inputs, self.inputs),
            self._sizes("Bytes of each output.", outputs, self.outputs),
            "/* Bytes of memory for intermediate results. */\n"
            f"#define {self.macro}_WORKSPACE_SIZE {self.workspace_bytes}",
            self._struct("inputs", "The addresses of the inputs.", inputs),
            self._struct("outputs", "The addresses that the outputs are written to.", outputs),
        ]
        sections += [
            "/* Runs the network. Returns 0, or another number if it failed. */\n"
            f"{self._run_head()};",
            "#ifdef __cplusplus\n}\n#endif",
            f"#endif /* {guard} */",
        ]
        return "\n\n".join(part for part in sections if part) + "\n"

    def _sizes(self, words: str, names: Sequence[str], operands: Sequence[Operand]) -> str:
        lines = [
            f"#define {self.macro}_{name.upper()}_SIZE {operand.bytes}"
            for name, operand in zip(names, operands, strict=True)
        ]
        return "\n".join([f"/* {words} */", *lines]) if lines else ""

    def _struct(self, what: str, words: str, names: Sequence[str]) -> str:
        # A structure without members is no C.
        members = [f"  void *{name};" for name in names] or ["  void *none;"]
        return "\n".join([f"/* {words} */", f"struct {self.prefix}_{what} {{", *members, "};"])

    def _run_head(self) -> str:
        params = ", ".join(f"struct {self.prefix}_{what} *{what}" for what in ("inputs", "outputs"))
        return f"int32_t {self.prefix}_run({params})"

    # ---- the code ----

    def memory(self) -> str:
        """The constants, and the memory for intermediate results."""
        aligned = f"STERNA_ALIGNED({self.constant_alignment})"
        sections = [
            _constant(self._constant_name(constant), constant, aligned)
            for constant in self.constants
        ]
        if self.workspace_bytes:
            sections.append(
                f"static STERNA_ALIGNED({self.alignment}) "
                f"uint8_t {self.prefix}_workspace[{self.workspace_bytes}];"
            )
        return "\n\n".join(sections)

    def _constant_name(self, constant: ConstantData) -> str:
        return f"{self.prefix}_constant_{constant.name}"

    def call(self, inputs: Sequence[str], outputs: Sequence[str]) -> str:
        """The call of the function that runs the network."""
        workspace = f"{self.prefix}_workspace" if self.workspace_bytes else "0"
        constants = [f"(void *){self._constant_name(constant)}" for constant in self.constants]
        return f"{self.entry}({', '.join([*inputs, *constants, *outputs, workspace])})"

    def plain(self, name: str) -> str:
        """A function of that name which is given the addresses of the inputs and outputs."""
        inputs = [f"input{place}" for place in range(len(self.inputs))]
        outputs = [f"output{place}" for place in range(len(self.outputs))]
        params = ", ".join(f"uint8_t *{value}" for value in (*inputs, *outputs)) or "void"
        call = f"  return {self.call(inputs, outputs)};"
        return "\n".join([f"static int32_t {name}({params}) {{", call, "}"])

    def run(self) -> str:
        """The function that the header declares."""
        inputs = [f"inputs->{name}" for name in self.members(self.inputs, "inputs")]
        outputs = [f"outputs->{name}" for name in self.members(self.outputs, "outputs")]
        unused = [
            f"  (void){what};"
            for what, names in (("inputs", inputs), ("outputs", outputs)) if not names
        ]
        call = f"  return {self.call(inputs, outputs)};"
        return "\n".join([f"{self._run_head()} {{", *unused, call, "}"])


def _constant(name: str, constant: ConstantData, aligned: str) -> str:
    dtype = constant.dtype
    texts = [_literal(value, dtype) for value in constant.values] or ["0"]
    rows = [", ".join(texts[at : at + PER_LINE]) for at in range(0, len(texts), PER_LINE)]
    body = ",\n  ".join(rows)
    head = f"static const {aligned} {storage_type(dtype)} {name}[{len(texts)}]"
    return f"{head} = {{\n  {body}\n}};"


def _literal(value: float, dtype: DataType) -> str:
    if dtype.is_float and not is_small_float(dtype):
        return float_literal(value, dtype)
    kind = DataType(f"uint{dtype.bits}") if is_small_float(dtype) else dtype
    return str(int(value)) if kind.is_bool else int_literal(int(value), kind)

"""A network in C as its callers see it: a header, and the functions that it declares."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sterna.codegen.c.types import Names, float_literal, int_literal, storage_type
from sterna.support.dtype import DataType
from sterna.support.float_format import is_small_float

PER_LINE = 8
BYTES_PER_LINE = 24


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
class PoolMemory:
    """A pool of memory: what the caller calls it, how much of it is used, and what is in it."""

    name: str
    bytes: int
    data: Sequence[int] | None = None
    """The bytes of a pool of constants, of each number the low one first."""


Place = tuple[int, int]
"""The number of a pool, and an offset in it."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network's function, and the memory that it is called with.

    static int32_t <entry>(inputs, constants, pools of constants, outputs, pools)
    """

    name: str
    entry: str
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]
    constants: Sequence[ConstantData]
    pools: Sequence[PoolMemory]
    """What the intermediate results lie in."""
    constant_pools: Sequence[PoolMemory] = ()
    alignment: int = 16
    constant_alignment: int = 16
    has_pools: bool = False
    """Whether the caller gives the pools; else they are arrays of the code's own."""
    input_places: Sequence[Place] = ()
    """Where inputs lie in the pools; then callers ask for their addresses."""
    output_places: Sequence[Place] = ()

    # ---- names ----

    @property
    def prefix(self) -> str:
        """What the names of everything begin with that a program sees."""
        return f"tvmgen_{self.name}"

    @property
    def macro(self) -> str:
        """The same in capitals."""
        return self.prefix.upper()

    @property
    def holds_operands(self) -> bool:
        """Whether inputs and outputs lie in the pools."""
        return bool(self.input_places or self.output_places)

    @property
    def takes_pools(self) -> bool:
        """Whether the caller gives memory."""
        return self.has_pools or bool(self.constant_pools)

    @property
    def given_pools(self) -> list[PoolMemory]:
        """The memory that the caller gives."""
        return [*(self.pools if self.has_pools else ()), *self.constant_pools]

    def members(self, operands: Iterable[Operand | PoolMemory], what: str) -> list[str]:
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
        total = sum(pool.bytes for pool in self.pools)
        sections = [
            f'/* The network "{self.name}", made by Sterna. */',
            f"#ifndef {guard}\n#define {guard}",
            "#include <stdint.h>",
            '#ifdef __cplusplus\nextern "C" {\n#endif',
            self._sizes("Bytes of each input.", inputs, self.inputs),
            self._sizes("Bytes of each output.", outputs, self.outputs),
            "/* Bytes of memory for intermediate results. */\n"
            f"#define {self.macro}_WORKSPACE_SIZE {total}",
            *self._pool_sections(),
            _struct(self.prefix, "inputs", "The addresses of the inputs.", inputs),
            _struct(self.prefix, "outputs", "The addresses that the outputs are written to.",
                    outputs),
            *(f"/* {words} */\n{head};" for words, head in self._functions()),
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

    def _pool_sections(self) -> list[str]:
        """What a caller must know about the memory that it gives."""
        if not self.takes_pools:
            return []
        names = self.members(self.given_pools, "memory pools")
        sections, members = [], []
        for name, pool in zip(names, self.given_pools, strict=True):
            macro = self._pool_macro(name, pool)
            alignment = self.alignment if pool.data is None else self.constant_alignment
            lines = [f"#define {macro}_SIZE {pool.bytes}", f"#define {macro}_ALIGNMENT {alignment}"]
            if pool.data is None:
                words = f"Bytes of the memory pool {name}, and what must divide its address."
                members.append(f"void *{name}")
            else:
                words = (
                    f"Bytes of the memory pool {name}, what must divide its address, and what must "
                    f"be in it,\n   low bytes first: const uint8_t {name}[{macro}_SIZE] = "
                    f"{macro}_DATA;"
                )
                lines.append(f"#define {macro}_DATA {_initializer(pool.data)}")
                members.append(f"const void *{name}")
            sections.append("\n".join([f"/* {words} */", *lines]))
        words = "The addresses of memory that the network uses while it runs."
        rows = [f"  {member};" for member in members]
        struct = [f"/* {words} */", f"struct {self.prefix}_workspace_pools {{", *rows, "};"]
        return [*sections, "\n".join(struct)]

    def _pool_macro(self, name: str, pool: PoolMemory) -> str:
        kind = "WORKSPACE" if pool.data is None else "CONSTANT"
        return f"{self.macro}_{name.upper()}_{kind}_POOL"

    def given_pool_sizes(self) -> list[dict[str, str | int | bool]]:
        """The memory that the caller gives: members, macros that begin so, sizes, and whether
        the pool holds constants."""
        names = self.members(self.given_pools, "memory pools")
        return [
            {"member": name, "macro": self._pool_macro(name, pool), "size": pool.bytes,
             "constant": pool.data is not None}
            for name, pool in zip(names, self.given_pools, strict=True)
        ]

    def _pools_param(self) -> list[str]:
        name = f"struct {self.prefix}_workspace_pools *workspace_pools"
        return [name] if self.takes_pools else []

    def _functions(self) -> list[tuple[str, str]]:
        """What is said of each function, and its head."""
        pools = ", ".join(self._pools_param()) or "void"
        found = [("Runs the network. Returns 0, or another number if it failed.", self._run_head())]
        if self.holds_operands:
            lie = {
                "inputs": "Where the inputs lie. They are written anew before each run.",
                "outputs": "Where the outputs lie, from a run until inputs are written again.",
            }
            maps = [
                (words, f"struct {self.prefix}_{what} {self.prefix}_map_{what}({pools})")
                for what, words in lie.items()
            ]
            return [*maps, *found]
        return found

    def _run_head(self) -> str:
        given = [] if self.holds_operands else [
            f"struct {self.prefix}_{what} *{what}" for what in ("inputs", "outputs")
        ]
        params = ", ".join([*given, *self._pools_param()]) or "void"
        return f"int32_t {self.prefix}_run({params})"

    # ---- the code ----

    def memory(self) -> str:
        """The constants, and the memory for intermediate results."""
        aligned = f"STERNA_ALIGNED({self.constant_alignment})"
        sections = [
            _constant(self._constant_name(constant), constant, aligned)
            for constant in self.constants
        ]
        if any(pool.data for pool in self.constant_pools):
            sections.append(_LITTLE)
        for pool, name in zip(self.pools, self._own_pools(), strict=True):
            if not self.has_pools and pool.bytes:
                sections.append(
                    f"static STERNA_ALIGNED({self.alignment}) uint8_t {name}[{pool.bytes}];"
                )
        return "\n\n".join(sections)

    def _own_pools(self) -> list[str]:
        """The names of the arrays that are the pools, where nobody gives any."""
        if len(self.pools) == 1:
            return [f"{self.prefix}_workspace"]
        names = self.members(self.pools, "memory pools")
        return [f"{self.prefix}_workspace_{name}" for name in names]

    def _constant_name(self, constant: ConstantData) -> str:
        return f"{self.prefix}_constant_{constant.name}"

    def _pool_addresses(self) -> tuple[list[str], list[str]]:
        """The addresses of the pools, and of those of constants."""
        given = [f"workspace_pools->{name}"
                 for name in self.members(self.given_pools, "memory pools")]
        constants = [f"(void *){name}" for name in given[len(given) - len(self.constant_pools) :]]
        if self.has_pools:
            return given[: len(self.pools)], constants
        pairs = zip(self.pools, self._own_pools(), strict=True)
        return [name if pool.bytes else "0" for pool, name in pairs], constants

    def call(self, inputs: Sequence[str], outputs: Sequence[str]) -> str:
        """The call of the function that runs the network."""
        pools, pooled = self._pool_addresses()
        constants = [f"(void *){self._constant_name(constant)}" for constant in self.constants]
        return f"{self.entry}({', '.join([*inputs, *constants, *pooled, *outputs, *pools])})"

    def plain(self, name: str) -> str:
        """A function of that name which is given the addresses of the inputs and outputs."""
        inputs = [f"input{place}" for place in range(len(self.inputs))]
        outputs = [f"output{place}" for place in range(len(self.outputs))]
        params = ", ".join(f"uint8_t *{value}" for value in (*inputs, *outputs)) or "void"
        call = f"  return {self.call(inputs, outputs)};"
        return "\n".join([f"static int32_t {name}({params}) {{", call, "}"])

    def run(self) -> str:
        """The functions that the header declares."""
        if self.holds_operands:
            return "\n\n".join([*self._maps(), self._body(self._run_head(), [], [])])
        inputs = [f"inputs->{name}" for name in self.members(self.inputs, "inputs")]
        outputs = [f"outputs->{name}" for name in self.members(self.outputs, "outputs")]
        unused = [what for what, names in (("inputs", inputs), ("outputs", outputs)) if not names]
        return self._body(self._run_head(), inputs, outputs, unused)

    def _body(
        self, head: str, inputs: Sequence[str], outputs: Sequence[str], unused: Sequence[str] = ()
    ) -> str:
        marks = [f"  (void){name};" for name in unused]
        return "\n".join([f"{head} {{", *marks, f"  return {self.call(inputs, outputs)};", "}"])

    def _maps(self) -> list[str]:
        """The functions that say where inputs and outputs lie."""
        pools, _ = self._pool_addresses()
        made = []
        for what, operands, places in (("inputs", self.inputs, self.input_places),
                                       ("outputs", self.outputs, self.output_places)):
            params = ", ".join(self._pools_param()) or "void"
            lines = [
                f"struct {self.prefix}_{what} {self.prefix}_map_{what}({params}) {{",
                f"  struct {self.prefix}_{what} found;",
            ]
            if self.takes_pools and not (self.has_pools and places):
                lines.append("  (void)workspace_pools;")
            for name, (pool, offset) in zip(self.members(operands, what), places, strict=True):
                lines.append(f"  found.{name} = (uint8_t *){pools[pool]} + {offset};")
            if not places:
                lines.append("  found.none = 0;")
            made.append("\n".join([*lines, "  return found;", "}"]))
        return made


# Constants come as bytes, in an order that the machine must share.
_LITTLE = """\
#if defined(__BYTE_ORDER__) && defined(__ORDER_LITTLE_ENDIAN__)
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "pools of constants are for machines that put low bytes first: leave them out"
#endif
#endif"""


def _struct(prefix: str, what: str, words: str, names: Sequence[str]) -> str:
    # A structure without members is no C.
    members = [f"  void *{name};" for name in names] or ["  void *none;"]
    return "\n".join([f"/* {words} */", f"struct {prefix}_{what} {{", *members, "};"])


def _initializer(data: Sequence[int]) -> str:
    """Bytes as what an array is initialized with."""
    rows = [", ".join(map(str, data[at : at + BYTES_PER_LINE]))
            for at in range(0, len(data), BYTES_PER_LINE)]
    return "{ \\\n  " + ", \\\n  ".join(rows or ["0"]) + " }"


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

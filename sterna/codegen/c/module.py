"""A file of C99 from a list of functions.

Functions with attrs["packed"] are exported as __tvm_ffi_<name>; a plain function is static if
another one calls it, else it is exported under its own name. The file needs nothing but a few
standard headers: threads, memory and errors come through the variable __sterna__host, which the
loader fills and which may stay 0.
"""

import re
from collections.abc import Sequence

from sterna.codegen.c.stmt import FunctionWriter, ModuleState, known_as, restrict
from sterna.codegen.c.types import (
    CodegenError,
    Names,
    math_library,
    storage_type,
    value_type,
)
from sterna.codegen.c.vectors import INCLUDE
from sterna.codegen.imports import imported_texts
from sterna.codegen.part import Functions, Part, as_parts
from sterna.codegen.symbols import LIBRARY_CONTEXT, LIBRARY_TABLE
from sterna.ir import expr as E
from sterna.ir.node import Node, post_order
from sterna.tir.passes.expand_tiles import expand_tiles
from sterna.tir.stmt import COMPUTES, PrimFunc

_MATH = "#include <math.h>"

_HEAD = """\
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Nobody wrote the comparisons below by hand: those whose outcome is certain are no mistakes. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wtautological-compare"
#endif

#if defined(_WIN32)
#define STERNA_EXPORT __declspec(dllexport)
#define STERNA_SLOT STERNA_EXPORT
#elif defined(__GNUC__)
#define STERNA_EXPORT __attribute__((visibility("default")))
#define STERNA_SLOT __attribute__((visibility("default"), weak))
#else
#define STERNA_EXPORT
#define STERNA_SLOT
#endif"""

# What comes from there, beside functions.
_MATH_MACROS = ("isnan", "isinf", "isfinite", "NAN", "INFINITY")

_ALIGNED = """\
#if defined(__GNUC__)
#define STERNA_ALIGNED(bytes) __attribute__((aligned(bytes)))
#else
#define STERNA_ALIGNED(bytes)
#endif"""

_SLOT = """\
/* What the host offers: the address of a struct sterna_host, or 0. */
STERNA_SLOT void *__sterna__host = 0;"""

_CONTEXT = """\
/* The module that this code belongs to, which its loader says. */
STERNA_SLOT void *{} = 0;"""


def generate(
    functions: Functions,
    module_name: str,
    table: bytes = b"",
    rest: Sequence[str] | None = None,
    vectors: bool = False,
) -> str:
    """The functions as one file of C99.

    table: says which modules they belong to, where these are several. rest: what comes behind the
    functions, which then are known to the file alone: it is part of a program, and no loader's.
    vectors: whether to write vectors of words with MVE's intrinsics, beside plain C.
    """
    is_program = rest is not None
    modules = as_parts(functions)
    texts = imported_texts([func for part in modules for func in part.functions], "c")
    # An imported text declares what it defines, with types that are more than an address.
    imported = {name for text in texts for name in re.findall(r"\b(\w+)\s*\(", text)}
    shared = ModuleState(
        imported=imported, names=Names(imported), is_program=is_program, vectors=vectors
    )
    parts: list[str] = []
    prototypes: list[str] = []
    for part in modules:
        state = shared.for_another_part()
        called = _enter(state, part)
        called |= {known_as(func) for func in part.functions if is_program}
        written = [expand_tiles(func) for func in part.functions if not func.attrs.get("external")]
        sources = {name: [node for nodes in calls for node in nodes] for func in part.functions
                   for name, calls in func.attrs.get("sources", {}).items()}
        for func in written:
            nodes = sources.get(func.name, func.attrs.get(COMPUTES, ()))
            parts.append(_computes(nodes) + _define(state, func, known_as(func) in called))
        prototypes += [_prototype(state, f) for f in part.functions if known_as(f) in called]
        shared.aligned |= state.aligned
    sections = [f"/* {_comment(module_name)}: made by Sterna. */"]
    needs_math = not is_program or _use_math(
        (*shared.helpers.text(), *texts, *parts, *(rest or ()))
    )
    sections.append(f"{_MATH}\n{_HEAD}" if needs_math else _HEAD)
    if vectors:
        sections.append(INCLUDE)
    if shared.aligned or is_program:
        sections.append(_ALIGNED)
    if not is_program or shared.helpers.needs_host:
        sections.append(_SLOT)
    sections += [_CONTEXT.format(name) for name in shared.slots]
    if table:
        sections.append(_table(table))
    sections += shared.helpers.text()
    sections += texts
    for declarations in (list(shared.externs.values()), prototypes):
        if declarations:
            sections.append("\n".join(declarations))
    return "\n\n".join([*sections, *parts, *(rest or ())]) + "\n"


def _use_math(texts: Sequence[str]) -> bool:
    names = "|".join([*sorted(math_library()), *_MATH_MACROS])
    return any(re.search(rf"\b(?:{names})\b", text) for text in texts)


def _enter(state: ModuleState, part: Part) -> set[str]:
    """Gives the functions of a part their C names; the names of those that others call."""
    called: set[str] = set()
    for func in part.functions:
        known = known_as(func)
        if known in state.functions:
            raise CodegenError(f"two functions are named {func.name}")
        state.functions[known] = func
        called |= _called(func)
        packed = bool(func.attrs.get("packed"))
        state.c_names[known] = part.packed_symbol(func) if packed else state.names.make(func.name)
    state.c_names[LIBRARY_CONTEXT] = part.context
    return called


def _table(table: bytes) -> str:
    rows = [", ".join(map(str, table[at : at + 24])) for at in range(0, len(table), 24)]
    listed = ",\n  ".join(rows)
    return f"""\
/* Which modules the functions belong to, and which of these imports which. */
STERNA_EXPORT const unsigned char {LIBRARY_TABLE}[] = {{
  {listed}
}};"""


def _computes(nodes: Sequence[str]) -> str:
    """A comment about the nodes of a model that a kernel computes."""
    return f"/* Computes {_comment(', '.join(nodes))}. */\n" if nodes else ""


def _define(state: ModuleState, func: PrimFunc, called: bool) -> str:
    writer = FunctionWriter(state, func)
    packed = bool(func.attrs.get("packed"))
    text = writer.packed() if packed else writer.kernel(called)
    signature = next(line for line in repr(func).splitlines() if line.startswith("def "))
    return f"/* {_comment(signature[4:-1])} */\n{text}"


def _prototype(state: ModuleState, func: PrimFunc) -> str:
    if func.attrs.get("packed"):
        name = state.c_names[known_as(func)]
        return f"STERNA_EXPORT int32_t {name}(void *, const void *, int32_t, void *);"
    kinds = [
        value_type(var.dtype) if buffer is None
        else f"{storage_type(buffer.dtype)} *{restrict(func, buffer).strip()}"
        for var, buffer in zip(func.params, func.buffers, strict=True)
    ]
    return f"static int32_t {state.c_names[known_as(func)]}({', '.join(kinds) or 'void'});"


def _called(func: PrimFunc) -> set[str]:
    found: set[str] = set()

    def look(node: Node) -> None:
        if isinstance(node, E.Call) and node.op == "try_call":
            first = node.args[0]
            if isinstance(first, E.StringImm):
                found.add(first.value)

    post_order(func, look)
    return found


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\n", " ")

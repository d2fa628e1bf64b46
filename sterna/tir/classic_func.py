"""Functions of loops by the arguments of the classic API.

    PrimFunc([a, n], body, buffer_map={a: A}, attrs={"global_symbol": "f"})

Here a parameter is the address of its buffer: with a map the buffers' own addresses are parameters.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from sterna.ir.expr import HANDLE, Var
from sterna.ir.module import IRModule
from sterna.ir.node import post_order
from sterna.tir.stmt import Allocate, Buffer, BufferLoad, BufferStore, PrimFunc, Stmt


def of_classic(
    params: Sequence[Any], body: Stmt, ret_type: Any = None,
    buffer_map: Mapping[Any, Buffer] | None = None, attrs: Mapping[str, Any] | None = None,
    span: Any = None,
) -> tuple[str, tuple[Var, ...], tuple[Buffer | None, ...], Stmt, dict[str, Any]]:
    """Name, parameters, buffers, body and attributes; without a global_symbol the name is empty.

    ret_type and span say nothing: functions of loops return nothing.
    """
    if not isinstance(body, Stmt):
        raise TypeError(f"PrimFunc: the body is a statement, not {body!r}")
    known = dict(buffer_map or {})
    used = _buffers_in(body)
    made: list[tuple[Var, Buffer | None]] = []
    for given in params:
        param = given.__sterna_expr__() if hasattr(given, "__sterna_expr__") else given
        if isinstance(param, Buffer):
            made.append((param.data, param))
        elif not isinstance(param, Var):
            raise TypeError(f"PrimFunc: a parameter is a variable or a buffer, not {param!r}")
        elif param in known:
            made.append((known[param].data, known[param]))
        elif param.dtype == HANDLE and param not in used:
            raise ValueError(
                f"PrimFunc: the parameter {param.name} is an address, but nothing says of what: "
                "give its buffer in buffer_map"
            )
        else:
            made.append((param, used.get(param)))
    rest = dict(attrs or {})
    name = str(rest.pop("global_symbol", ""))
    return name, tuple(p for p, _ in made), tuple(b for _, b in made), body, rest


def _buffers_in(body: Stmt) -> dict[Var, Buffer]:
    """The buffers that a statement reads or writes, by their addresses, but for its own."""
    found: dict[Var, Buffer] = {}
    own: set[Var] = set()

    def look(node: Any) -> None:
        if isinstance(node, BufferLoad | BufferStore):
            found[node.buffer.data] = node.buffer
        elif isinstance(node, Allocate):
            own.add(node.buffer.data)

    post_order(body, look)
    return {address: buffer for address, buffer in found.items() if address not in own}


_of_fields = PrimFunc.__init__


def _init(func: PrimFunc, *args: Any, **named: Any) -> None:
    """Either the fields, which begin with the name, or the classic arguments."""
    begins = args[0] if args else named.get("name")
    if isinstance(begins, str):
        _of_fields(func, *args, **named)
    else:
        _of_fields(func, *of_classic(*args, **named))


PrimFunc.__init__ = _init  # type: ignore[method-assign,assignment]
IRModule.own_names[PrimFunc] = attrgetter("name")

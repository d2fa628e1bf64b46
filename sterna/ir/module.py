"""A set of functions by name."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from sterna.ir.node import Node
from sterna.support.classic import find_moved
from sterna.support.show_text import show_text

# The attribute of a model's module, and of its executor's graph, that names the outputs.
OUTPUT_NAMES = "output_names"


class Name(str):
    """A function's name as a module keeps it; it also answers to its classic attribute."""

    __slots__ = ()

    @property
    def name_hint(self) -> str:
        """The name itself."""
        return str(self)


def _name_of(key: Any) -> str:
    """The name that text or a global variable says."""
    return Name(key if isinstance(key, str) else key.name_hint)


class IRModule:
    """Functions by name, and attributes of the whole."""

    # How a graph's expression becomes the function of a module; the graph IR sets it.
    wrap: ClassVar[Callable[[Any], Node]]
    # How a module of graph functions is written; the graph IR sets it.
    write: ClassVar[Callable[..., str] | None] = None
    # The names of functions that know them, by class.
    own_names: ClassVar[dict[type[Node], Callable[[Any], str]]] = {}

    def __init__(
        self, functions: Mapping[Any, Node] | None = None, attrs: Mapping[str, Any] | None = None
    ) -> None:
        self.functions: dict[str, Node] = {_name_of(k): f for k, f in (functions or {}).items()}
        self.attrs: dict[str, Any] = dict(attrs or {})

    @classmethod
    def from_expr(cls, expr: Any, functions: Mapping[Any, Node] | None = None) -> "IRModule":
        """A module whose main is a graph: a function, or an expression of free variables.

        A function of loops has the name that it knows.
        """
        if type(expr) in cls.own_names:
            return cls({**(functions or {}), cls.own_names[type(expr)](expr) or "main": expr})
        return cls({**(functions or {}), "main": cls.wrap(expr)})

    def __getitem__(self, name: Any) -> Any:
        found = self.functions.get(_name_of(name))
        if found is None:
            known = ", ".join(self.functions) or "none"
            raise ValueError(f"the module has no function '{_name_of(name)}'; it has {known}")
        return found

    def __setitem__(self, name: Any, function: Node) -> None:
        self.functions[_name_of(name)] = function

    def get_type(self, name: str) -> tuple[Any, ...]:
        """An algebraic data type of the module, and its constructors."""
        data = self[name]
        if not hasattr(data, "constructors"):
            raise ValueError(f"'{name}' is a function of the module, not a data type")
        return (data.header, *data.constructors)

    def get_global_var(self, name: str) -> Any:
        """What calls a function of the module."""
        self[name]
        return find_moved("sterna.ir", "GlobalVar")(name)

    def get_global_vars(self) -> list[Any]:
        """What calls each function of the module."""
        return [self.get_global_var(name) for name in self.functions]

    def get_attr(self, name: str) -> Any:
        """An attribute; None if there is none of that name."""
        return self.attrs.get(name)

    def script(self) -> str:
        """The functions as text, which tir.parse and relay.parse read."""
        return str(self)

    def update_func(self, name: Any, function: Node) -> None:
        """Put another function in place of one."""
        self[name] = function

    def update(self, other: "IRModule | Mapping[Any, Node]") -> None:
        """Take in the functions of another module, in place of those of equal names."""
        given = other if isinstance(other, IRModule) else IRModule(other)
        self.functions.update(given.functions)

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def with_attr(self, name: str, value: Any) -> "IRModule":
        """The module with one more attribute."""
        return IRModule(self.functions, {**self.attrs, name: value})

    def shallow_copy(self) -> "IRModule":
        """Another module of the same functions."""
        return IRModule(self.functions, self.attrs)

    def astext(self, show_meta_data: bool = True) -> str:
        """The functions as text, with constants that are too large to stand in it."""
        return repr(self) if IRModule.write is None else IRModule.write(self, show_meta_data)

    def show(self, style: str | None = None) -> None:
        """Print the functions, in colours on a terminal; style: "light", "dark" or "ansi"."""
        show_text(str(self), style)

    def __repr__(self) -> str:
        if IRModule.write is not None:
            return IRModule.write(self)
        return "\n\n".join(repr(function) for function in self.functions.values())

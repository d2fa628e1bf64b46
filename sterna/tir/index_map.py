"""Layout maps: from the indices of one layout to those of another."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sterna.arith import Analyzer, Digits, NoDigits, interval, substitute
from sterna.ir import build
from sterna.ir.expr import (
    Add,
    BinaryExpr,
    Cast,
    Expr,
    ExprLike,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Sub,
    Var,
)
from sterna.runtime.ndarray import NDArray, array
from sterna.support.dtype import DataType


class IndexMap:
    """Where the element with some initial indices lies in another layout.

    IndexMap.from_func(lambda n, h, w, c: [n, c // 4, h, w, c % 4]) blocks channels by four.
    """

    AXIS_SEPARATOR: ClassVar[str] = "axis_separator"
    """Among final indices: the dimensions before and after it stay apart in memory."""

    def __init__(
        self,
        initial_indices: Sequence[Var],
        final_indices: Sequence[Expr],
        inverse_index_map: "IndexMap | None" = None,
    ) -> None:
        self.initial_indices = tuple(initial_indices)
        self.final_indices = tuple(final_indices)
        self.inverse_index_map = inverse_index_map

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: "Callable[..., Any] | IndexMap | None" = None,
        *,
        index_dtype: str = "int32",
    ) -> "IndexMap":
        """The map that a function of the initial indices describes by a list of final ones.

        ndim is needed for a function of *indices; arguments behind those are the last indices.
        """
        made, separators = IndexMap.from_func_with_separators(
            mapping_function, ndim, inverse_index_map, index_dtype=index_dtype
        )
        if separators:
            raise ValueError("the map has axis separators; use from_func_with_separators")
        return made

    @staticmethod
    def from_func_with_separators(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: "Callable[..., Any] | IndexMap | None" = None,
        *,
        index_dtype: str = "int32",
    ) -> "tuple[IndexMap, list[int]]":
        """The same, and the places of final indices before which there is an AXIS_SEPARATOR."""
        positional, keywords = _argument_names(mapping_function, ndim)
        variables = {name: Var(name, DataType(index_dtype)) for name in (*positional, *keywords)}
        given = mapping_function(
            *[variables[name] for name in positional],
            **{name: variables[name] for name in keywords},
        )
        final: list[Expr] = []
        separators: list[int] = []
        for item in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(item, str) and item == IndexMap.AXIS_SEPARATOR:
                separators.append(len(final))
                continue
            index = build.as_expr(item)
            if not index.dtype.is_integer:
                raise TypeError(f"an index map gives integers, not {index.dtype}")
            final.append(index)
        inverse = inverse_index_map
        if inverse is not None and not isinstance(inverse, IndexMap):
            inverse = IndexMap.from_func(inverse, len(final), index_dtype=index_dtype)
        return IndexMap(list(variables.values()), final, inverse), separators

    # ---- there ----

    def map_indices(self, indices: Sequence[ExprLike]) -> list[Expr]:
        """The final indices of an element."""
        self._check_count(len(indices), "indices")
        at: dict[Var, Expr] = {
            var: build.cast(var.dtype, index)
            for var, index in zip(self.initial_indices, indices, strict=True)
        }
        analyzer = Analyzer()
        return [analyzer.simplify(substitute(index, at)) for index in self.final_indices]

    def map_shape(self, shape: Sequence[Any]) -> list[Expr]:
        """The smallest shape with room for every element of a shape."""
        extents = self._extents(shape)
        analyzer = Analyzer()
        mapped = []
        for index in self.final_indices:
            low, high = _span(index, extents)
            if low is None or high is None:
                raise ValueError(f"the range of the index {index} of {self!r} is not known")
            if not analyzer.can_prove(build.equal(low, 0)):
                raise ValueError(f"the index {index} of {self!r} begins at {low}, not at 0")
            mapped.append(analyzer.simplify(build.cast(index.dtype, build.add(high, 1))))
        return mapped

    def map_ndarray(self, arr_src: Any) -> Any:
        """An array in the other layout; where that has no element of it, it is 0."""
        source: npt.NDArray[Any] = arr_src.numpy() if isinstance(arr_src, NDArray) else arr_src
        shape = [build.int_value(extent) for extent in self.map_shape(source.shape)]
        result = np.zeros([extent or 0 for extent in shape], source.dtype)
        at = dict(zip(self.initial_indices, np.indices(source.shape), strict=True))
        result[tuple(_numbers(index, at) for index in self.final_indices)] = source
        return array(result) if isinstance(arr_src, NDArray) else result

    # ---- and back ----

    def inverse(self, shape: Sequence[Any]) -> "IndexMap":
        """The map back, of a map that fills the other layout without gaps."""
        made, padding = self.non_surjective_inverse(shape)
        if not build.is_const(padding, 0):
            raise ValueError(
                f"{self!r} is not bijective on the shape {_listed(shape)}: the shape "
                f"{_listed(self.map_shape(shape))} has more elements; use non_surjective_inverse"
            )
        return made

    def non_surjective_inverse(self, shape: Sequence[Any]) -> tuple["IndexMap", Expr]:
        """The map back, and the condition on final indices that there is no element: padding."""
        made, conditions = self.inverse_where(shape)
        inside = build.const(True)
        for condition in conditions:
            inside = build.logical_and(inside, condition)
        analyzer = self._analyzer(made.initial_indices, self.map_shape(shape))
        return made, analyzer.simplify(build.logical_not(inside))

    def inverse_where(self, shape: Sequence[Any]) -> tuple["IndexMap", list[Expr]]:
        """The map back, and what holds for the final indices of elements but not for others."""
        extents = self._extents(shape)
        mapped = self.map_shape(shape)
        final = self._final_variables()
        analyzer = self._analyzer(final, mapped)
        places: list[Expr] = [
            # An initial index stays one, even where it can only be 0.
            build.const(0) if build.is_const(extent, 1) and not isinstance(index, Var) else var
            for var, extent, index in zip(final, mapped, self.final_indices, strict=True)
        ]
        initial = self._initial(extents, places, shape)
        made = IndexMap(final, [analyzer.simplify(index) for index in initial], self)
        conditions: list[Expr] = []
        for index, extent in zip(made.final_indices, extents.values(), strict=True):
            conditions += [build.greater_equal(index, 0), build.less(index, extent)]
        again = self.map_indices(made.final_indices)
        conditions += [build.equal(i, place) for i, place in zip(again, places, strict=True)]
        simple = [analyzer.simplify(condition) for condition in conditions]
        return made, [condition for condition in simple if not build.is_const(condition, 1)]

    def is_equivalent_to(self, other: "IndexMap") -> bool:
        """Whether both map every element to the same place."""
        if len(self.initial_indices) != len(other.initial_indices):
            return False
        theirs = other.map_indices(self.initial_indices)
        same = Analyzer().can_prove_equal
        return len(theirs) == len(self.final_indices) and all(
            same(a, b) for a, b in zip(self.final_indices, theirs, strict=True)
        )

    def _initial(
        self, extents: dict[Var, Expr], final: Sequence[Expr], shape: Sequence[Any]
    ) -> list[Expr]:
        """The initial indices of the element at some final ones."""
        if self.inverse_index_map is not None:
            return self.inverse_index_map.map_indices(final)
        digits = Digits(extents)
        try:
            found = digits.solve([digits.read(index) for index in self.final_indices], final)
        except NoDigits as error:
            raise ValueError(
                f"{self!r} has no inverse on the shape {_listed(shape)}: {error}"
            ) from None
        for index, place in zip(self.final_indices, final, strict=True):
            if isinstance(index, Var):
                found[index] = place
        return [build.cast(var.dtype, found[var]) for var in self.initial_indices]

    def _analyzer(self, final: Sequence[Var], mapped: Sequence[Expr]) -> Analyzer:
        analyzer = Analyzer()
        for var, extent in zip(final, mapped, strict=True):
            analyzer.bind(var, 0, extent)
        return analyzer

    def _final_variables(self) -> list[Var]:
        """A variable for each final index, named like the initial index if it is one."""
        return [
            Var(index.name if isinstance(index, Var) else f"axis{place}", index.dtype)
            for place, index in enumerate(self.final_indices)
        ]

    def _extents(self, shape: Sequence[Any]) -> dict[Var, Expr]:
        self._check_count(len(shape), "extents")
        extents = {}
        for var, item in zip(self.initial_indices, shape, strict=True):
            if hasattr(item, "extent") and not build.is_const(item.min, 0):
                raise ValueError(f"index maps count from 0, but the range of {var.name} does not")
            extents[var] = build.as_expr(getattr(item, "extent", item))
        return extents

    def _check_count(self, count: int, what: str) -> None:
        if count != len(self.initial_indices):
            raise ValueError(f"{self!r} takes {len(self.initial_indices)} {what}, not {count}")

    def __repr__(self) -> str:
        names = ", ".join(var.name for var in self.initial_indices)
        return f"index_map({names} -> {_listed(self.final_indices)})"


def _listed(items: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, items))}]"


def _span(index: Expr, extents: dict[Var, Expr]) -> tuple[Expr | None, Expr | None]:
    try:
        return Digits(extents).read(index).span()
    except NoDigits:
        return interval(index, {v: (build.const(0, e.dtype), e - 1) for v, e in extents.items()})


_OPERATORS: dict[type[Expr], Callable[..., Any]] = {
    Add: np.add, Sub: np.subtract, Mul: np.multiply, FloorDiv: np.floor_divide, FloorMod: np.mod,
    Min: np.minimum, Max: np.maximum,
}


def _numbers(index: Expr, at: Mapping[Var, Any]) -> Any:
    """The values of an index for many elements at once."""
    if isinstance(index, IntImm):
        return index.value
    if isinstance(index, Cast):
        return _numbers(index.value, at)
    if isinstance(index, Var) and index in at:
        return at[index]
    if isinstance(index, BinaryExpr) and type(index) in _OPERATORS:
        return _OPERATORS[type(index)](_numbers(index.a, at), _numbers(index.b, at))
    raise ValueError(f"map_ndarray cannot compute the index {index}")


def _argument_names(
    function: Callable[..., Any], ndim: int | None
) -> tuple[list[str], list[str]]:
    """The names of the indices that a function takes, and of those that it takes behind *args."""
    kinds = inspect.Parameter
    parameters = list(inspect.signature(function).parameters.values())
    if any(p.kind is kinds.VAR_KEYWORD for p in parameters) or any(
        p.default is not kinds.empty for p in parameters
    ):
        raise ValueError("an index map's function takes indices, without defaults or **keywords")
    positional = [p.name for p in parameters if p.kind in (
        kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    keywords = [p.name for p in parameters if p.kind is kinds.KEYWORD_ONLY]
    several = next((p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL), None)
    named = len(positional) + len(keywords)
    if several is not None:
        if ndim is None:
            raise ValueError(f"the index map takes *{several}: say how many indices with ndim")
        positional += [f"{several}_{place}" for place in range(ndim - named)]
    if ndim is not None and len(positional) + len(keywords) != ndim:
        raise ValueError(f"the index map takes {named} indices, but there are {ndim}")
    return positional, keywords

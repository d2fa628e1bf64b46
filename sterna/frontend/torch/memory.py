"""Whose memory results lie in: operators that give views, and those that do so or make copies.

PyTorch decides by strides: `reshape` of a transposed tensor is a copy, of another one a view, and
a change in place of the result changes the tensor only in the latter case.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sterna.frontend.torch.program import Step

# Views, and how a change of one is written back to what it views: by an operator of that name, by
# the shape alone, or not at all ("opaque").
VIEWS = {
    "alias": "same", "detach": "same", "lift_fresh": "same", "contiguous": "same", "to": "same",
    "type_as": "same", "cpu": "same", "positive": "same",
    "view": "shape", "view_as": "shape", "reshape": "shape", "reshape_as": "shape",
    "flatten": "shape", "ravel": "shape", "unflatten": "shape", "unsqueeze": "shape",
    "squeeze": "shape", "_reshape_alias": "shape",
    "select": "select_scatter", "slice": "slice_scatter", "diagonal": "diagonal_scatter",
    "narrow": "narrow", "unbind": "unbind", "split": "split", "split_with_sizes": "split",
    # what takes itself back
    "transpose": "again", "t": "again", "numpy_T": "again", "mT": "again", "mH": "again",
    "matrix_H": "again", "adjoint": "again", "swapaxes": "again", "swapdims": "again",
    "permute": "permute", "movedim": "moved", "moveaxis": "moved",
    "expand": "opaque", "expand_as": "opaque", "broadcast_to": "opaque", "chunk": "opaque",
    "hsplit": "opaque", "vsplit": "opaque", "dsplit": "opaque", "tensor_split": "opaque",
    "unfold": "opaque", "as_strided": "opaque", "linalg_diagonal": "opaque",
    "conj": "opaque", "_conj": "opaque", "_neg_view": "opaque", "resolve_conj": "opaque",
    "resolve_neg": "opaque", "real": "opaque", "imag": "opaque", "view_as_real": "opaque",
    "view_as_complex": "opaque", "dropout": "same", "feature_dropout": "same",
    "alpha_dropout": "same", "feature_alpha_dropout": "same", "sum_to_size": "opaque",
    "atleast_1d": "opaque", "atleast_2d": "opaque", "atleast_3d": "opaque",
}
# Operators that view tensors of a list, each of its own result: here as well nothing is written
# back. A result of einsum may be a view of its only operand.
VIEWS_OF_LISTS = frozenset({
    "broadcast_tensors", "meshgrid", "atleast_1d", "atleast_2d", "atleast_3d", "einsum",
})
# Views that PyTorch makes of other operators, and keeps whole in what it records.
KEPT_WHOLE = VIEWS_OF_LISTS | {"sum_to_size"}
# Operators that change what a tensor is without a change of its memory: views under its old name.
RENAMED = {
    "unsqueeze_": "unsqueeze", "squeeze_": "squeeze", "transpose_": "transpose", "t_": "t",
    "swapaxes_": "swapaxes", "swapdims_": "swapdims", "detach_": "detach",
}
# Operators that read elements by their places in memory, whatever view they are given.
BY_MEMORY = frozenset({"as_strided", "as_strided_copy"})
# The same of one that gives back the whole of what it is given, with these elements written anew.
WRITES_BY_MEMORY = frozenset({"as_strided_scatter"})
# How views are written back that begin where their base begins.
_AT_THE_BEGINNING = frozenset({"same", "shape", "again", "permute", "moved"})
_OPAQUE_AT_THE_BEGINNING = frozenset({"expand", "expand_as", "broadcast_to", "unfold"})
_AS_IT_IS = frozenset({"contiguous", "to", "type_as", "cpu"})
_IN_ANOTHER_SHAPE = frozenset({"reshape", "reshape_as", "flatten", "ravel"})

Extent = int | str
"""A number, or the text of an expression over symbols."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The type of a tensor's elements, and where they lie."""

    dtype: str
    sizes: Sequence[Extent]
    strides: Sequence[Extent]

    @property
    def is_in_order(self) -> bool:
        """Whether the last index moves fastest and there are no holes."""
        step: Extent = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if size == 1:
                continue
            if stride != step:
                return False
            if isinstance(size, int) and isinstance(step, int):
                step *= size
            else:  # of open extents the strides are not compared
                return True
        return True


def written_back_by(target: str) -> str:
    """How a change of a view is written back; elements under another type are opaque."""
    return "opaque" if target == "aten.view.dtype" else VIEWS.get(operator_of(target), "opaque")


def operator_of(target: str) -> str:
    """add_ of aten.add_.Tensor."""
    return target.split(".")[1] if target.count(".") else target


def begins_at_its_base(view: str) -> bool:
    """Whether the first element of a view is the first one of what it views."""
    return VIEWS.get(view) in _AT_THE_BEGINNING or view in _OPAQUE_AT_THE_BEGINNING


Layouts = Callable[[str], Layout | None]
"""The layouts of values by name, as far as their reader knows them."""


def shares_memory(name: str, step: Step, base: Layout | None, own: Layout | None) -> bool | None:
    """Whether the result of an operator that may give a view is one; None: nobody knows."""
    if name.endswith("dropout"):
        return step.arguments.get("train") is False
    if name not in _AS_IT_IS and name not in _IN_ANOTHER_SHAPE:
        return True
    if step.arguments.get("copy") is True:
        return False
    if base is None or own is None:
        return None
    if name in _AS_IT_IS:
        return base.dtype == own.dtype and list(base.strides) == list(own.strides)
    return _has_strides(base, own)


def _has_strides(base: Layout, own: Layout) -> bool | None:
    """Whether strides can say another shape of the same elements."""
    if list(base.sizes) == list(own.sizes):
        return True
    numbers = (*base.sizes, *base.strides, *own.sizes)
    if not all(isinstance(number, int) for number in numbers):
        return None
    left = [
        (int(size), int(step))
        for size, step in zip(base.sizes, base.strides, strict=True) if size != 1
    ]
    if any(size == 0 for size, _ in left):
        return True
    wanted = [int(size) for size in own.sizes if size != 1]
    while left:
        size, step = left.pop()
        while left and left[-1][1] == size * step:  # axes that lie one in the other
            size *= left.pop()[0]
        made = 1
        while wanted and made < size:
            made *= wanted.pop()
        if made != size:
            return False
    return not wanted

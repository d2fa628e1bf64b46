"""Questions about expressions and functions of loops, by their classic names."""

from sterna.ir.expr import Expr
from sterna.ir.structural import structural_equal
from sterna.support.errors import InternalError
from sterna.tir.stmt import PrimFunc
from sterna.tir.verify import verify


def expr_deep_equal(lhs: Expr, rhs: Expr) -> bool:
    """Whether two expressions say the same of the very same variables."""
    return structural_equal(lhs, rhs)


def verify_ssa(func: PrimFunc) -> bool:
    """Whether each variable is bound once, and before it is used."""
    try:
        verify(func, "scopes")
    except InternalError:
        return False
    return True


def verify_well_formed(func: PrimFunc, assert_mode: bool = True) -> bool:
    """Whether a function keeps to the rules of loops; an error says which it breaks."""
    try:
        verify(func, "full")
    except InternalError:
        if assert_mode:
            raise
        return False
    return True

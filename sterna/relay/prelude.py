"""relay.prelude: data types and functions that programs begin with.

Prelude(mod) adds List, Option and Tree to a module, and functions over them: hd, tl, nth, length,
update, map, foldl, foldr, foldr1, sum, concat, filter, zip, rev, iterate, id, compose, flip, tmap
and size. They are polymorphic, and compiled once for all types.
"""

from collections.abc import Sequence

from sterna.ir.module import IRModule
from sterna.ir.types import FuncType, GlobalTypeVar, TensorType, TupleType, Type, TypeVar
from sterna.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternVar,
    TypeData,
)
from sterna.relay.builders import builder
from sterna.relay.expr import Call, Function, GlobalVar, If, RelayExpr, Tuple, Var, const
from sterna.support.dtype import DataType

INT = TensorType((), DataType("int32"))
FLAG = TensorType((), DataType("bool"))
A, B, C = TypeVar("a"), TypeVar("b"), TypeVar("c")


class Prelude:
    """The data types and functions of a module, by their names."""

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        self._define_types()
        self._define_lists()
        self._define_others()

    def get_type(self, name: str) -> tuple[GlobalTypeVar | Constructor, ...]:
        """A data type and its constructors."""
        return self.mod.get_type(name)

    # ---- types ----

    def _type(self, name: str, *kinds: tuple[str, Sequence[Type]]) -> TypeData:
        header = GlobalTypeVar(name)
        made = TypeData(header, [A], [Constructor(n, tuple(f), header) for n, f in kinds])
        self.mod[header] = made
        return made

    def _define_types(self) -> None:
        self.l, self.tree_ = GlobalTypeVar("List"), GlobalTypeVar("Tree")
        made = self._type("List", ("Cons", [A, self.l(A)]), ("Nil", []))
        self.cons, self.nil = made.constructors
        self.some, self.none = self._type("Option", ("Some", [A]), ("None", [])).constructors
        children = self.l(self.tree_(A))
        (self.rose,) = self._type("Tree", ("Rose", [A, children])).constructors

    # ---- functions ----

    def _define(
        self, name: str, params: Sequence[Var], result: Type, body: RelayExpr,
        kinds: Sequence[TypeVar] = (A,),
    ) -> GlobalVar:
        var = GlobalVar(name)
        self.mod[var] = Function(tuple(params), body, result, tuple(kinds))
        setattr(self, name, var)
        return var

    def _cases(
        self, data: RelayExpr, first: Var, rest: Var, some: RelayExpr, none: RelayExpr | None
    ) -> Match:
        """What a list is when it has elements, and when it has none."""
        pattern = PatternConstructor(self.cons, (PatternVar(first), PatternVar(rest)))
        clauses = [Clause(pattern, some)]
        if none is not None:
            empty: Pattern = PatternConstructor(self.nil, ())
            clauses.append(Clause(empty, none))
        return Match(data, tuple(clauses), none is not None)

    def _define_lists(self) -> None:
        whole, some = self.l(A), self.l(B)
        xs, ys, n = Var("xs", whole), Var("ys", some), Var("n", INT)
        x, rest = Var("x"), Var("rest")
        self._define("hd", [xs], A, self._cases(xs, x, rest, x, None))
        x, rest = Var("x"), Var("rest")
        self._define("tl", [xs], whole, self._cases(xs, x, rest, rest, None))
        nth, hd, tl = GlobalVar("nth"), GlobalVar("hd"), GlobalVar("tl")
        down = _call("subtract", n, const(1))
        at_begin = _call("equal", n, const(0))
        self._define("nth", [xs, n], A, If(at_begin, hd(xs), nth(tl(xs), down)))
        update, value = GlobalVar("update"), Var("value", A)
        later = self.cons(hd(xs), update(tl(xs), down, value))
        self._define("update", [xs, n, value], whole,
                     If(at_begin, self.cons(value, tl(xs)), later))
        self._define_folds(xs, ys)
        length, fold = GlobalVar("length"), GlobalVar("foldl")
        count, each = Var("count", INT), Var("each", A)
        more = Function((count, each), _call("add", count, const(1)), INT)
        self._define("length", [xs], INT, fold(more, const(0), xs))
        numbers, total = Var("numbers", self.l(INT)), Var("total", INT)
        each_number = Var("each", INT)
        plus = Function((total, each_number), _call("add", total, each_number), INT)
        self._define("sum", [numbers], INT, fold(plus, const(0), numbers), ())
        self.length = length

    def _define_folds(self, xs: Var, ys: Var) -> None:
        whole, some = self.l(A), self.l(B)
        f, x, rest = Var("f", FuncType((A,), B)), Var("x"), Var("rest")
        mapped, foldl, foldr = GlobalVar("map"), GlobalVar("foldl"), GlobalVar("foldr")
        body = self.cons(Call(f, (x,)), mapped(f, rest))
        self._define("map", [f, xs], some, self._cases(xs, x, rest, body, self.nil()), (A, B))
        g, state, x, rest = Var("g", FuncType((B, A), B)), Var("s", B), Var("x"), Var("rest")
        again = foldl(g, Call(g, (state, x)), rest)
        self._define("foldl", [g, state, xs], B, self._cases(xs, x, rest, again, state), (A, B))
        h, state, x, rest = Var("h", FuncType((A, B), B)), Var("s", B), Var("x"), Var("rest")
        again = Call(h, (x, foldr(h, state, rest)))
        self._define("foldr", [h, state, xs], B, self._cases(xs, x, rest, again, state), (A, B))
        k, x, rest, y, last = (
            Var("k", FuncType((A, A), A)), Var("x"), Var("rest"), Var("y"), Var("last")
        )
        deeper = Call(k, (x, GlobalVar("foldr1")(k, rest)))
        inner = self._cases(rest, y, last, deeper, x)
        self._define("foldr1", [k, xs], A, self._cases(xs, x, rest, inner, None))
        other, x, rest = Var("other", whole), Var("x"), Var("rest")
        joined = self.cons(x, GlobalVar("concat")(rest, other))
        self._define("concat", [xs, other], whole, self._cases(xs, x, rest, joined, other))
        p, x, rest = Var("p", FuncType((A,), FLAG)), Var("x"), Var("rest")
        kept = GlobalVar("filter")(p, rest)
        choice = If(Call(p, (x,)), self.cons(x, kept), kept)
        self._define("filter", [p, xs], whole, self._cases(xs, x, rest, choice, self.nil()))
        x, rest, y, more = Var("x"), Var("rest"), Var("y"), Var("more")
        pairs = self.l(TupleType((A, B)))
        pair = self.cons(Tuple((x, y)), GlobalVar("zip")(rest, more))
        inner = self._cases(ys, y, more, pair, self.nil())
        self._define("zip", [xs, ys], pairs, self._cases(xs, x, rest, inner, self.nil()), (A, B))
        done, each = Var("done", whole), Var("each", A)
        turn = Function((done, each), self.cons(each, done), whole)
        self._define("rev", [xs], whole, foldl(turn, self.nil(), xs))

    def _define_others(self) -> None:
        x = Var("x", A)
        self._define("id", [x], A, x)
        outer, inner = Var("outer", FuncType((B,), C)), Var("inner", FuncType((A,), B))
        both = Function((x,), Call(outer, (Call(inner, (x,)),)), C)
        self._define("compose", [outer, inner], FuncType((A,), C), both, (A, B, C))
        f, x, y = Var("f", FuncType((A, B), C)), Var("x", A), Var("y", B)
        turned = Function((y, x), Call(f, (x, y)), C)
        self._define("flip", [f], FuncType((B, A), C), turned, (A, B, C))
        step, n, x = Var("step", FuncType((A,), A)), Var("n", INT), Var("x", A)
        again = GlobalVar("iterate")(step, _call("subtract", n, const(1)))
        more = Function((x,), Call(again, (Call(step, (x,)),)), A)
        nothing = Function((x,), x, A)
        self._define("iterate", [step, n], FuncType((A,), A),
                     If(_call("equal", n, const(0)), nothing, more))
        self._define_trees()

    def _define_trees(self) -> None:
        f, tree = Var("f", FuncType((A,), B)), Var("tree", self.tree_(A))
        x, children, each = Var("x"), Var("children"), Var("each", self.tree_(A))
        inner = Function((each,), GlobalVar("tmap")(f, each), self.tree_(B))
        mapped = self.rose(Call(f, (x,)), GlobalVar("map")(inner, children))
        pattern = PatternConstructor(self.rose, (PatternVar(x), PatternVar(children)))
        body = Match(tree, (Clause(pattern, mapped),))
        self._define("tmap", [f, tree], self.tree_(B), body, (A, B))
        x, children, each = Var("x"), Var("children"), Var("each", self.tree_(A))
        size = GlobalVar("size")
        sizes = GlobalVar("map")(size, children)
        pattern = PatternConstructor(self.rose, (PatternVar(x), PatternVar(children)))
        total = _call("add", const(1), GlobalVar("sum")(sizes))
        self._define("size", [tree], INT, Match(tree, (Clause(pattern, total),)))


def _call(name: str, *args: RelayExpr) -> RelayExpr:
    made: RelayExpr = builder(name)(*args)
    return made

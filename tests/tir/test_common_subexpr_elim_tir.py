"""Names for what is computed several times: where they begin, and where there must be none."""

import textwrap

import pytest

import sterna as tvm
from sterna import te
from sterna.ir import IRModule
from sterna.ir.transform import PassContext
from sterna.tir import parse, pipeline
from sterna.tir.passes.common_subexpr_elim_tir import common_subexpr_elim_tir
from sterna.tir.verify import verify
from tests.tir.random_programs import assert_same, draw

HEAD = (
    'def f(A: Buffer[(64,), "float32"], B: Buffer[(64,), "float32"], '
    'T: Buffer[(64,), "int32"], n: int32, m: int32, x: float32):\n'
)


def after(body: str) -> str:
    """The body of a function after the pass."""
    func = parse(HEAD + textwrap.indent(textwrap.dedent(body).strip("\n"), "    "))
    verify(func)
    done = common_subexpr_elim_tir(func)
    verify(done)
    again = common_subexpr_elim_tir(done)
    assert str(again) == str(done)
    return str(done.body)


def same(body: str) -> None:
    """Nothing is named."""
    assert "cse" not in after(body)


def check(body: str, expected: str) -> None:
    assert after(body) == textwrap.dedent(expected).strip("\n")


# ---- what gets a name ----


def test_indices_of_one_statement() -> None:
    check(
        "A[n*8 + m] = B[n*8 + m] + 1.0",
        """
        cse1: int32 = exact(n*8 + m)
        A[cse1] = B[cse1] + 1.0
        """,
    )


def test_values_of_one_statement() -> None:
    check(
        "A[n] = exp(B[n] - x) / (exp(B[n] - x) + 1.0)",
        """
        cse1: float32 = exp(B[n] - x)
        A[n] = cse1 / (cse1 + 1.0)
        """,
    )


def test_the_largest_gets_the_name_and_its_parts_none() -> None:
    check(
        "A[n] = (B[n] - x)*2.0*((B[n] - x)*2.0)",
        """
        cse1: float32 = (B[n] - x)*2.0
        A[n] = cse1*cse1
        """,
    )


def test_parts_that_are_needed_elsewhere_have_names_of_their_own() -> None:
    check(
        "A[n] = exp(B[n])*2.0*(exp(B[n])*2.0) + exp(B[n])",
        """
        cse1: float32 = exp(B[n])
        cse2: float32 = cse1*2.0
        A[n] = cse2*cse2 + cse1
        """,
    )


def test_small_expressions_have_none() -> None:
    same("A[n + 1] = B[n + 1] + B[n + 1]")
    same("A[n] = B[n]*B[n]")
    same("A[n] = select(n*8 + m < 4, x, x)")


def test_vectors_of_indices_stay_visible() -> None:
    check(
        "A[ramp(n*8 + m*2, 1, 4)] = B[ramp(n*8 + m*2, 1, 4)]",
        """
        cse1: int32 = exact(n*8 + m*2)
        A[ramp(cse1, 1, 4)] = B[ramp(cse1, 1, 4)]
        """,
    )


def test_vectors_of_values() -> None:
    check(
        "A[ramp(n, 1, 4)] = exp(B[ramp(n, 1, 4)])*exp(B[ramp(n, 1, 4)])",
        """
        cse1: float32x4 = exp(B[ramp(n, 1, 4)])
        A[ramp(n, 1, 4)] = cse1*cse1
        """,
    )


def test_indices_and_other_integers_are_not_one() -> None:
    # those of a condition may wrap
    check(
        """
        if n*8 + m < 60:
            A[n*8 + m] = 0.0
            B[n*8 + m] = 0.0
        """,
        """
        if n*8 + m < 60:
            cse1: int32 = exact(n*8 + m)
            A[cse1] = 0.0
            B[cse1] = 0.0
        """,
    )


def test_zeros_differ_by_their_sign() -> None:
    same("A[n] = (x + 0.0)*B[n] - (x + -0.0)*B[n]")


# ---- where a name begins ----


def test_before_the_first_of_several_statements() -> None:
    check(
        """
        T[0] = n
        A[n*8 + m] = 0.0
        T[1] = n
        for i in range(m):
            B[n*8 + m + i] = 1.0
        """,
        """
        T[0] = n
        cse1: int32 = exact(n*8 + m)
        A[cse1] = 0.0
        T[1] = n
        for i in range(m):
            B[cse1 + i] = 1.0
        """,
    )


def test_inside_the_loop_whose_variable_it_uses() -> None:
    check(
        """
        for i in range(4):
            for j in range(4):
                A[i*16 + n*4 + j] = 0.0
            for k in range(4):
                B[i*16 + n*4 + k] = 0.0
        """,
        """
        for i in range(4):
            cse1: int32 = exact(i*16 + n*4)
            for j in range(4):
                A[cse1 + j] = 0.0
            for k in range(4):
                B[cse1 + k] = 0.0
        """,
    )


def test_bounds_of_loops() -> None:
    check(
        """
        for i in range(n*2 + m):
            A[i] = 0.0
        for j in range(n*2 + m):
            B[j] = 0.0
        """,
        """
        cse1: int32 = exact(n*2 + m)
        for i in range(cse1):
            A[i] = 0.0
        for j in range(cse1):
            B[j] = 0.0
        """,
    )


def test_cheap_integers_before_a_guard() -> None:
    check(
        """
        if n < 4:
            A[n*8 + m] = 0.0
        if m < 4:
            A[n*8 + m] = 1.0
        """,
        """
        cse1: int32 = exact(n*8 + m)
        if n < 4:
            A[cse1] = 0.0
        if m < 4:
            A[cse1] = 1.0
        """,
    )


# ---- memory ----


def test_memory_that_does_not_change() -> None:
    check(
        """
        A[0] = exp(B[n] - x)
        A[1] = exp(B[n] - x)
        """,
        """
        cse1: float32 = exp(B[n] - x)
        A[0] = cse1
        A[1] = cse1
        """,
    )


def test_memory_that_changes_between() -> None:
    same("""
        A[0] = exp(B[n] - x)
        B[m] = 0.0
        A[1] = exp(B[n] - x)
    """)
    same("""
        B[0] = exp(B[n] - x)
        B[1] = exp(B[n] - x)
    """)
    same("""
        A[0] = exp(B[n] - x)
        call_extern("g", address_of(B[0]))
        A[1] = exp(B[n] - x)
    """)


def test_the_last_store_may_change_it() -> None:
    check(
        """
        A[0] = exp(B[n] - x)
        B[m] = exp(B[n] - x)
        """,
        """
        cse1: float32 = exp(B[n] - x)
        A[0] = cse1
        B[m] = cse1
        """,
    )


def test_a_name_ends_where_memory_changes() -> None:
    check(
        """
        A[0] = exp(B[n] - x)
        A[1] = exp(B[n] - x)
        B[m] = 0.0
        A[2] = exp(B[n] - x)
        B[m] = 1.0
        A[3] = exp(B[n] - x)
        A[4] = exp(B[n] - x)
        """,
        """
        with scope():
            cse1: float32 = exp(B[n] - x)
            A[0] = cse1
            A[1] = cse1
        B[m] = 0.0
        A[2] = exp(B[n] - x)
        B[m] = 1.0
        cse2: float32 = exp(B[n] - x)
        A[3] = cse2
        A[4] = cse2
        """,
    )


def test_scopes_that_would_cross() -> None:
    check(
        """
        A[0] = exp(B[n] - x)
        A[1] = exp(B[n] - x)*tanh(B[m] - x)
        T[0] = n
        A[2] = tanh(B[m] - x)
        B[0] = 0.0
        A[3] = exp(B[n] - x)
        """,
        """
        with scope():
            cse1: float32 = exp(B[n] - x)
            A[0] = cse1
            cse2: float32 = tanh(B[m] - x)
            A[1] = cse1*cse2
            T[0] = n
            A[2] = cse2
        B[0] = 0.0
        A[3] = exp(B[n] - x)
        """,
    )


def test_many_names_do_not_nest() -> None:
    pairs = [f"    A[n*{i} + m] = 0.0\n    B[n*{i} + m] = 0.0" for i in range(2, 1000)]
    done = common_subexpr_elim_tir(parse(HEAD + "\n".join(pairs)))
    verify(done)
    assert str(done).count("= exact(") == len(pairs)


def test_a_loop_that_changes_it() -> None:
    same("""
        A[0] = exp(B[n] - x)
        for i in range(4):
            B[i] = exp(B[n] - x)
    """)


def test_loaded_indices() -> None:
    check(
        """
        A[T[n]*4 + m] = 0.0
        B[T[n]*4 + m] = 0.0
        """,
        """
        cse1: int32 = exact(T[n]*4 + m)
        A[cse1] = 0.0
        B[cse1] = 0.0
        """,
    )


# ---- guards ----


def test_what_a_guard_protects_stays_behind_it() -> None:
    same("A[n] = if_then_else(n < 4, exp(B[n] - x), if_then_else(m < 4, exp(B[n] - x), 0.0))")
    same("""
        if m != 0:
            A[0] = float32(n // m + 1)
        if n < 4:
            A[1] = float32(n // m + 1)
    """)
    same("""
        if n < 4:
            A[0] = exp(B[n] - x)
        else:
            A[1] = exp(B[n] - x)
    """)
    same("""
        for i in range(n):
            A[0] = exp(B[n] - x)
        for j in range(n):
            A[1] = exp(B[n] - x)
    """)


def test_what_is_certainly_needed_serves_the_guarded_too() -> None:
    check(
        """
        A[0] = exp(B[n] - x) + if_then_else(m < 4, exp(B[n] - x)*2.0, 0.0)
        if n < 4:
            A[1] = exp(B[n] - x)
        """,
        """
        cse1: float32 = exp(B[n] - x)
        A[0] = cse1 + if_then_else(m < 4, cse1*2.0, 0.0)
        if n < 4:
            A[1] = cse1
        """,
    )


def test_a_guarded_use_before_the_certain_one_keeps_its_own() -> None:
    check(
        """
        if n < 4:
            A[1] = exp(B[n] - x)
        A[0] = exp(B[n] - x)
        A[2] = exp(B[n] - x)
        """,
        """
        if n < 4:
            A[1] = exp(B[n] - x)
        cse1: float32 = exp(B[n] - x)
        A[0] = cse1
        A[2] = cse1
        """,
    )


def test_a_loop_that_certainly_runs() -> None:
    check(
        """
        for i in range(4):
            A[i] = exp(B[n] - x)
        A[5] = exp(B[n] - x)
        """,
        """
        cse1: float32 = exp(B[n] - x)
        for i in range(4):
            A[i] = cse1
        A[5] = cse1
        """,
    )


def test_nothing_moves_before_a_check() -> None:
    same("""
        for i in range(4):
            assert n < 4, ValueError("n is large")
            A[i] = exp(B[n] - x)
        A[5] = exp(B[n] - x)
    """)
    check(
        """
        assert n < 4, IndexError("n is {}", n)
        A[0] = exp(B[n] - x)
        assert m < 4, ValueError("m is large")
        A[5] = exp(B[n] - x)
        """,
        """
        assert n < 4, IndexError("n is {}", n)
        cse1: float32 = exp(B[n] - x)
        A[0] = cse1
        assert m < 4, ValueError("m is large")
        A[5] = cse1
        """,
    )


def test_inside_a_branch() -> None:
    check(
        "A[n] = if_then_else(m < 4, exp(B[n] - x)*exp(B[n] - x), 0.0)",
        "A[n] = if_then_else(m < 4, let(cse1, exp(B[n] - x), cse1*cse1), 0.0)",
    )
    check(
        "A[n] = if_then_else(m < 4, if_then_else(n < 4, exp(B[n])*exp(B[n]), exp(B[n])), 0.0)",
        "A[n] = if_then_else(m < 4, if_then_else(n < 4, let(cse1, exp(B[n]), cse1*cse1), "
        "exp(B[n])), 0.0)",
    )


def test_in_branches_of_what_is_named_at_one_place() -> None:
    choices = "if_then_else(m < 4, exp(x), 0.0) + if_then_else(n < 4, exp(x)*x, 0.0)"
    text = after(f"A[0] = {choices}\nA[1] = sqrt({choices})")
    assert text.count("if_then_else") == text.count("exp(x)") == 2


def test_integers_in_branches() -> None:
    check(
        "A[n] = if_then_else(m < 4, B[n*8 + m], B[n*8 + m + 1])",
        """
        cse1: int32 = exact(n*8 + m)
        A[n] = if_then_else(m < 4, B[cse1], B[cse1 + 1])
        """,
    )


# ---- calls and names ----


def test_calls_with_effects_are_not_joined() -> None:
    same('A[0] = float32(call_extern("g", n) + 1)*float32(call_extern("g", n) + 1)')


def test_pure_calls_are() -> None:
    text = after('A[0] = float32(call_pure_extern("g", n)) + float32(call_pure_extern("g", n))')
    assert text.count("call_pure_extern") == 1


def test_names_of_expressions_stay_in_them() -> None:
    same("A[n] = let(y, B[n] - x, y*y*2.0 + y*y*2.0)")


def test_named_statements() -> None:
    check(
        """
        y: int32 = n*8 + m
        A[y*4 + 1] = 0.0
        B[y*4 + 1] = 0.0
        """,
        """
        y: int32 = n*8 + m
        cse1: int32 = exact(y*4 + 1)
        A[cse1] = 0.0
        B[cse1] = 0.0
        """,
    )


# ---- with the rest ----


def gelu_twice() -> tuple[te.Schedule, list[te.Tensor]]:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: te.erf(a[i] * 0.5) * te.erf(a[i] * 0.5), name="b")
    return te.create_schedule(b.op), [a, b]


def test_the_setting() -> None:
    s, args = gelu_twice()
    assert str(tvm.lower(s, args)).count("erf") == 1
    with PassContext(config={"tir.disable_cse_tir": True}):
        assert str(tvm.lower(s, args)).count("erf") == 2
    off = tvm.tir.transform.CommonSubexprElimTIR(False)
    func = IRModule({"f": parse(HEAD + "    A[n*8 + m] = B[n*8 + m]")})
    assert off(func) is func


def test_code_generators_know_that_named_indices_do_not_wrap() -> None:
    func = parse(HEAD + "    A[n*8 + m] = B[n*8 + m] + 1.0")
    llvm = tvm.build(func, target="llvm").get_source()
    assert "mul nsw i32" in llvm and "add nsw i32" in llvm


def test_named_indices_overflow_nowhere_in_c() -> None:
    """C gives an overflow no meaning, even if a guard keeps its result from being used."""
    guarded = "    if n < 4:\n        A[n*8 + m] = 0.0\n    if m < 4:\n        A[n*8 + m] = 1.0"
    source = tvm.build(parse(HEAD + guarded), target="c").get_source()
    assert "cse1 = (int32_t)((uint32_t)n*8u + (uint32_t)m);" in source
    inner = "        for j in range(8):\n            A[i*8 + j] = B[i*8 + j]"
    loops = f"    for i in range(4):\n{inner}"
    assert "cse1 = i*8 + j;" in tvm.build(parse(HEAD + loops), target="c").get_source()


def test_alignment_is_seen_through_names() -> None:
    text = HEAD.replace('"float32"], B', '"float32", alignment=64], B') + (
        "    A[ramp(n*16 + m*32, 1, 8)] = broadcast(x, 8)\n    T[n*16 + m*32] = 0"
    )
    func = parse(text)
    source = tvm.build(func, target="llvm").get_source()
    assert "store <8 x float>" in source and "align 64" in source.split("store <8 x float>")[1]


@pytest.mark.parametrize("seed", range(60))
def test_random_functions_keep_their_numbers(seed: int) -> None:
    program = draw(seed)
    done = common_subexpr_elim_tir(program.func)
    verify(done)
    assert_same(program, done)
    if seed % 4 == 0:
        assert_same(program, pipeline.run(program.func))

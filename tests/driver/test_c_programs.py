"""Programs in C: any operator, any options, any compiler; nothing of the system is needed."""

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.codegen.c.types import math_library
from sterna.ir.types import flatten_type
from sterna.relay.backend import Executor, Runtime
from sterna.relay.expr import Call, Function, Tuple, Var
from sterna.relay.infer import infer
from sterna.relay.op import AnyOp, Op, records
from sterna.runtime.executor import AotModule
from tests.driver.c_network import (
    C_INTERFACE,
    COMPILERS,
    STRICT,
    CNetwork,
    compile_strictly,
)
from tests.driver.test_memory_pools import constants, workspace
from tests.op.harness import argument_of, arrays_of, assert_same, flatten
from tests.support import require_program

HEADERS = {"<math.h>", "<stddef.h>", "<stdint.h>", "<string.h>"}
MEMORY = {"memcpy", "memmove", "memset", "memcmp"}
# What compilers make of sinf and cosf of one number.
FUSED = {"sincosf", "sincos"}
EVERY = 12
GROUPS = 2


class Group:
    """Operators as one network, with their operands and what they should give."""

    def __init__(self, chosen: list[AnyOp]) -> None:
        values: dict[Var, Any] = {}
        calls = []
        self.wanted: list[Any] = []
        self.tolerances: list[Any] = []
        for record in chosen:
            operands = arrays_of(record.cases[0])
            case = record.cases[0]
            attrs = record.attrs(**case.attrs) if record.attrs is not None else None
            own: dict[Var, Any] = {}
            args = tuple(argument_of(value, own, False) for value in operands)
            call = Call(Op(record.name), args, attrs)
            if not all(kind.is_static for kind in flatten_type(infer(call))):
                continue
            for var, value in own.items():
                var.name_hint = f"v{len(values)}"
                values[var] = value
            assert record.reference is not None
            results = flatten(record.reference(attrs, *operands))
            self.wanted += results
            self.tolerances += [case.tolerance] * len(results)
            calls.append(call)
        self.values = list(values.values())
        self.function = Function(tuple(values), Tuple(tuple(calls)))


def network() -> Function:
    """A small network of whole numbers: convolutions, a depthwise one, and a classifier."""
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> Any:
        return relay.const(rng.integers(-127, 128, shape).astype("int8"))

    def requantized(value: Any, scale: float) -> Any:
        return relay.qnn.op.requantize(
            value, relay.const(scale), relay.const(0), relay.const(1.0), relay.const(0),
            axis=-1, out_dtype="int8",
        )

    def conv(value: Any, weight: Any, channels: int, groups: int = 1) -> Any:
        made = relay.qnn.op.conv2d(
            value, weight, relay.const(0), relay.const(0), relay.const(1.0), relay.const(1.0),
            kernel_size=(3, 3), channels=channels, padding=(1, 1), groups=groups,
        )
        return requantized(relay.nn.relu(made), 1 / 400)

    x = relay.var("x", shape=(1, 3, 12, 12), dtype="int8")
    y = conv(x, weights(8, 3, 3, 3), 8)
    y = conv(y, weights(8, 1, 3, 3), 8, groups=8)
    y = relay.nn.max_pool2d(y, (2, 2), strides=(2, 2))
    y = relay.nn.batch_flatten(y)
    y = relay.qnn.op.dense(y, weights(10, 288), relay.const(0), relay.const(0), relay.const(1.0),
                           relay.const(1.0), units=10)
    return Function((x,), requantized(y, 1 / 4000))


def build(function: Function, name: str, config: Any = None, options: Any = None,
          **more: Any) -> Any:
    with tvm.transform.PassContext(opt_level=3, config=config or {}):
        return relay.build(
            tvm.IRModule({"main": function}), target="c", mod_name=name, runtime=Runtime("crt"),
            executor=Executor("aot", {**C_INTERFACE, **(options or {})}), **more,
        )


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    names = sorted(records())
    whole = [name for name in names if name.startswith("qnn.")]
    chosen = [*whole[::3], *[name for name in names if name not in whole][::EVERY]]
    return [Group([records()[name] for name in chosen[at::GROUPS]]) for at in range(GROUPS)]


@pytest.fixture(scope="module")
def built(groups: list[Group]) -> list[Any]:
    return [build(group.function, f"ops{at}") for at, group in enumerate(groups)]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_operators(
    compiler: str, groups: list[Group], built: list[Any], tmp_path: Path
) -> None:
    """What each compiler makes of operators of all families gives what their references give."""
    for group, program in zip(groups, built, strict=True):
        got = CNetwork(program, tmp_path, compiler)(group.values, group.wanted)
        for have, want, tolerance in zip(got, group.wanted, group.tolerances, strict=True):
            assert_same(have, np.asarray(want), tolerance)


def test_nothing_else_is_needed(built: list[Any], tmp_path: Path) -> None:
    nm, gcc = require_program("nm"), COMPILERS["gcc"]()
    for program in built:
        source = program.get_lib().get_source()
        assert set(re.findall(r"^\s*#\s*include\s+(\S+)", source, re.MULTILINE)) <= HEADERS
        path, made = tmp_path / "code.c", tmp_path / "code.o"
        path.write_text(source)
        compile_strictly(gcc, path, made, ["-Os", "-fno-stack-protector"])
        listed = subprocess.run([nm, "-u", str(made)], capture_output=True, text=True, check=True)
        needed = {line.split()[-1] for line in listed.stdout.splitlines()}
        known = set(math_library()) | {f"{name}f" for name in math_library()} | MEMORY | FUSED
        assert needed <= known | {"_GLOBAL_OFFSET_TABLE_"}
        assert not _recursive(source)


def _recursive(source: str) -> set[str]:
    """Functions that are called, by themselves or others, while they run."""
    calls: dict[str, set[str]] = {}
    for match in re.finditer(r"^static [^\n(]*?(\w+)\([^;]*?\) \{$(.*?)^\}", source,
                             re.MULTILINE | re.DOTALL):
        calls[match[1]] = set(re.findall(r"\b(\w+)\(", match[2]))
    assert calls
    reached = {name: direct & set(calls) for name, direct in calls.items()}
    for _ in calls:
        reached = {n: r.union(*(reached[other] for other in r)) for n, r in reached.items()}
    return {name for name, others in reached.items() if name in others}


OPTIONS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({}, {}, {}),
    ({"tir.disable_vectorize": True}, {"workspace-byte-alignment": 4}, {}),
    ({"tir.usmp.use_workspace_io": True}, {"constant-byte-alignment": 64}, {}),
    ({"tir.usmp.enable": True, "tir.usmp.algorithm": "hill_climb"}, {"workspace-byte-alignment": 8},
     {"workspace_memory_pools": workspace(800, 64000)}),
    ({"tir.usmp.use_workspace_io": True}, {"constant-byte-alignment": 8},
     {"constant_memory_pools": constants(9000)}),
    ({}, {"link-params": False}, {}),
]


@pytest.fixture(scope="module")
def networks() -> list[Any]:
    return [
        build(network(), f"net{place}", config, options, **more)
        for place, (config, options, more) in enumerate(OPTIONS)
    ]


@pytest.mark.parametrize("place", range(len(OPTIONS)))
def test_whole_numbers_and_options(place: int, networks: list[Any], tmp_path: Path) -> None:
    """The same bytes come out whatever the options are."""
    lib = relay.build(tvm.IRModule({"main": network()}), target="llvm", executor=Executor("aot"))
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 12, 12)).astype("int8")
    module = AotModule(lib["default"](tvm.cpu(0)))
    module.set_input("x", x)
    module.run()
    want = module.get_output(0).numpy()
    assert len(np.unique(want)) > 3
    program = networks[place]
    given = {"x": x, **{n: a.numpy() for n, a in program.get_params().items()}}
    inputs = [given[operand.name] for operand in program.interface.inputs]
    np.testing.assert_array_equal(CNetwork(program, tmp_path)(inputs, [want])[0], want)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_models_in_one_program(compiler: str, networks: list[Any], tmp_path: Path) -> None:
    """Several networks, with pools and without, live in one program."""
    sources, lines = [], []
    for place, program in enumerate(networks[:5]):
        (tmp_path / f"tvmgen_net{place}.h").write_text(program.get_c_header())
        sources.append(tmp_path / f"net{place}.c")
        sources[-1].write_text(program.get_lib().get_source())
        lines.append(f'#include "tvmgen_net{place}.h"')
    lines.append(_MAIN)
    main, output = tmp_path / "main.c", tmp_path / "program"
    main.write_text("\n".join(lines))
    files = [str(path) for path in (main, *sources)]
    command = [*COMPILERS[compiler](), *STRICT, "-O0", *files, "-o", str(output), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = subprocess.run([str(output)], capture_output=True, text=True, check=True)
    rows = run.stdout.splitlines()
    assert len(rows) == 5 and len(set(rows)) == 1 and len(set(rows[0].split())) > 2


_MAIN = """
#include <stdio.h>
#include <string.h>
static int8_t x[432], y[10];
static int64_t a[TVMGEN_NET3_A_WORKSPACE_POOL_SIZE / 8 + 2];
static int64_t b[TVMGEN_NET3_B_WORKSPACE_POOL_SIZE / 8 + 2];
static const struct { int64_t align; uint8_t bytes[TVMGEN_NET4_FLASH0_CONSTANT_POOL_SIZE]; }
    flash = {0, TVMGEN_NET4_FLASH0_CONSTANT_POOL_DATA};

static void show(const void *given) {
  const int8_t *result = given;
  for (int i = 0; i < 10; i++) printf("%d ", result[i]);
  printf("\\n");
}

int main(void) {
  for (int i = 0; i < 432; i++) x[i] = (int8_t)(i * 37 % 255 - 127);
  struct tvmgen_net0_inputs in0 = {x};
  struct tvmgen_net0_outputs out0 = {y};
  if (tvmgen_net0_run(&in0, &out0)) return 1;
  show(y);
  struct tvmgen_net1_inputs in1 = {x};
  struct tvmgen_net1_outputs out1 = {y};
  if (tvmgen_net1_run(&in1, &out1)) return 1;
  show(y);
  memcpy(tvmgen_net2_map_inputs().x, x, TVMGEN_NET2_X_SIZE);
  if (tvmgen_net2_run()) return 1;
  show(tvmgen_net2_map_outputs().output);
  struct tvmgen_net3_inputs in3 = {x};
  struct tvmgen_net3_outputs out3 = {y};
  struct tvmgen_net3_workspace_pools pools3 = {a, b};
  if (tvmgen_net3_run(&in3, &out3, &pools3)) return 1;
  show(y);
  struct tvmgen_net4_workspace_pools pools4 = {flash.bytes};
  memcpy(tvmgen_net4_map_inputs(&pools4).x, x, TVMGEN_NET4_X_SIZE);
  if (tvmgen_net4_run(&pools4)) return 1;
  show(tvmgen_net4_map_outputs(&pools4).output);
  return 0;
}
"""

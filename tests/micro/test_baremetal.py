"""Programs for bare Cortex-M boards, by both compilers, run by QEMU."""

import ctypes
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import micro
from sterna.micro.example import (
    ExampleError,
    ExampleTimeoutError,
    read_example,
    run_example,
)
from sterna.micro.host_driven import DrivenNetwork
from sterna.micro.platforms.boards import TEMPLATES, load_boards
from sterna.micro.platforms.handler import Project
from sterna.micro.platforms.network import draw_inputs, unpack_network
from tests.micro.networks import assert_agree, build, mixed, run_here
from tests.relay.agreement import flat, hold, tolerance_of, value
from tests.relay.random_graphs import draw_network, draw_shapes
from tests.support import require_module, require_program

LIBC = TEMPLATES / "baremetal" / "libc"
BOARDS = load_boards(TEMPLATES / "baremetal")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network that all boards run."""
    folder = tmp_path_factory.mktemp("network")
    return micro.export_model_library_format(build(mixed()), folder / "model.tar")


@pytest.fixture(scope="module")
def expected(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What it gives on this machine."""
    network = unpack_network(archive, tmp_path_factory.mktemp("code"))
    return run_here(mixed(), draw_inputs(network))


@pytest.fixture(scope="module")
def template() -> Iterator[micro.TemplateProject]:
    made = micro.TemplateProject.from_directory("baremetal")
    yield made
    made.close()


@pytest.mark.parametrize("toolchain", ["gcc", "zig"])
@pytest.mark.parametrize("board", BOARDS)
def test_a_board_gives_what_this_machine_gives(
    board: str, toolchain: str, archive: Path, template: micro.TemplateProject, tmp_path: Path,
    expected: list[Any],
) -> None:
    require_program("qemu-system-arm")
    if toolchain == "gcc":
        require_program("arm-none-eabi-gcc")
    else:
        require_module("ziglang")
    options = {"board": board, "project_type": "example_project", "warning_as_error": True}
    project = template.generate_project_from_mlf(archive, tmp_path / "project", options)
    project.build({"toolchain": toolchain})
    project.flash()
    made = run_example(project)
    project.close()
    assert_agree(list(made.outputs.values()), expected)
    assert list(made.outputs) == ["output0", "output1", "output2"]
    assert 100 < made.stack_bytes < 4096


@pytest.mark.parametrize(
    ("draw", "seed", "board"), [(draw_network, 200, "mps2_an386"), (draw_shapes, 203, "mps3_an547")]
)
def test_random_networks(
    draw: Any, seed: int, board: str, template: micro.TemplateProject, tmp_path: Path
) -> None:
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    drawn = draw(seed, 6)
    names = [param.name_hint for param in drawn.function.params]
    np.savez(tmp_path / "inputs.npz", **dict(zip(names, drawn.values, strict=True)))
    options = {"board": board, "project_type": "example_project", "toolchain": "gcc",
               "sample_inputs": tmp_path / "inputs.npz"}
    built = build(tvm.IRModule({"main": drawn.function}))
    project = template.generate_project(built, tmp_path / "project", options)
    project.build()
    made = run_example(project).outputs
    project.close()
    want, near = value(drawn, drawn.function), value(drawn, drawn.function, 1e-5)
    hold(tuple(made.values()), tuple(flat(want)), near, tolerance_of(drawn))


def test_make_builds_it_without_us(
    archive: Path, template: micro.TemplateProject, tmp_path: Path, expected: list[Any]
) -> None:
    make = require_program("make")
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    options = {"board": "mps2_an386", "project_type": "example_project"}
    template.generate_project_from_mlf(archive, tmp_path / "project", options).close()
    done = subprocess.run(
        [make, "-s", "run"], cwd=tmp_path / "project", capture_output=True, text=True, timeout=60,
        check=True, stdin=subprocess.DEVNULL,
    )
    made = read_example(done.stdout + done.stderr)
    assert_agree(list(made.outputs.values()), expected)
    subprocess.run([make, "-s", "clean"], cwd=tmp_path / "project", timeout=60, check=True)
    assert not (tmp_path / "project" / "build").exists()


def test_a_program_that_faults_says_so(
    archive: Path, template: micro.TemplateProject, tmp_path: Path
) -> None:
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    options = {"board": "mps2_an386", "project_type": "example_project", "toolchain": "gcc"}
    project = template.generate_project_from_mlf(archive, tmp_path / "project", options)
    with pytest.raises(ValueError, match="not built yet"):
        project.open_transport()
    example = tmp_path / "project" / "src" / "example.c"
    text = example.read_text().replace("int32_t status = model_run();",
                                       "int32_t status = *(volatile int32_t *)0xfffffff0;")
    example.write_text(text)
    project.build()
    with pytest.raises(ExampleError, match=r"status 70(.|\n)*hard fault"):
        run_example(project)
    example.write_text("#include \"project.h\"\nint32_t project_run(void) { return 3; }\n")
    project.build()
    with pytest.raises(ExampleError, match="status 3"):
        run_example(project)
    example.write_text("#include \"project.h\"\nint32_t project_run(void) { for (;;) {} }\n")
    project.build()
    with pytest.raises(ExampleTimeoutError, match="ran for more than 1 s"):
        run_example(project, seconds=1)
    project.close()


@pytest.mark.parametrize("board", ["microbit", "mps2_an386"])
def test_a_board_that_the_host_drives_by_its_uart(
    board: str, archive: Path, template: micro.TemplateProject, tmp_path: Path, expected: list[Any]
) -> None:
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    options = {"board": board, "project_type": "host_driven", "toolchain": "gcc"}
    project = template.generate_project_from_mlf(archive, tmp_path / "project", options)
    project.build({"warning_as_error": True})
    network = Project.load(project.folder).network
    with project.transport() as stream:
        driven = DrivenNetwork(stream, network)
        assert_agree(driven(**draw_inputs(network)), expected)
        driven.quit()
        with pytest.raises(micro.transport.TransportClosedError, match="status 0"):
            stream.read(1, 10.0)
    project.close()


# ---- mathematics of compilers without a C library ----

ONE = ["log1p", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
       "nearbyint", "rint"]
TWO = ["atan2", "pow", "hypot", "copysign", "nextafter"]
SPECIAL = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 5e-324, -5e-324, 1e308, -1e308, 1e-300,
    2.5, 0.5, -0.5, 1.5, -2.5, 3.0, -3.0, 709.5, 1e-9, 4503599627370497.5,
]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """Our functions, and this machine's."""
    made = tmp_path_factory.mktemp("libc") / "math.so"
    subprocess.run(
        [require_program("gcc"), "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror",
         "-fno-builtin", "-shared", "-fPIC", f"-I{LIBC}", str(LIBC / "math.c"), "-o", str(made),
         "-lm"],
        check=True,
    )
    return ctypes.CDLL(str(made)), ctypes.CDLL("libm.so.6")


def calls(libraries: tuple[ctypes.CDLL, ctypes.CDLL], name: str, kinds: list[Any]) -> list[Any]:
    made = []
    for library in libraries:
        function = getattr(library, name)
        function.restype, function.argtypes = kinds[0], kinds
        made.append(function)
    return made


@pytest.mark.parametrize(("suffix", "kind", "tolerance"),
                         [("", ctypes.c_double, 1e-13), ("f", ctypes.c_float, 3e-7)])
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_functions_of_our_own(
    libraries: tuple[ctypes.CDLL, ctypes.CDLL], name: str, suffix: str, kind: Any, tolerance: float
) -> None:
    count = 1 if name in ONE else 2
    ours, theirs = calls(libraries, name + suffix, [kind] * count)
    rng = np.random.default_rng(0)
    drawn = [*rng.standard_normal(400), *rng.uniform(-1, 1, 400), *10 ** rng.uniform(-10, 2.9, 200)]
    given: list[tuple[float, ...]] = [(x,) for x in (*SPECIAL, *drawn)]
    if count == 2:
        given = [(x, y) for x in SPECIAL for y in SPECIAL]
        given += zip(drawn, rng.uniform(-30, 30, len(drawn)), strict=True)
    for values in given:
        got, want = ours(*values), theirs(*values)
        if math.isnan(want):
            assert math.isnan(got), values
        elif want == 0 or math.isinf(want):
            assert got == want and math.copysign(1, got) == math.copysign(1, want), values
        else:
            assert abs(got - want) <= tolerance * abs(want), (values, got, want)


def test_scaling_by_powers_of_two(libraries: tuple[ctypes.CDLL, ctypes.CDLL]) -> None:
    ours, theirs = calls(libraries, "ldexp", [ctypes.c_double, ctypes.c_double])
    for function in (ours, theirs):
        function.argtypes = [ctypes.c_double, ctypes.c_int]
    powers = [*range(-2200, 2200, 37), -1074, -1075, -1022, 1023, 1024, 10**6, -(10**6)]
    for x in [x for x in SPECIAL if not math.isnan(x)] + [0.7, -1.3]:
        assert all(ours(x, p) == theirs(x, p) for p in powers), x

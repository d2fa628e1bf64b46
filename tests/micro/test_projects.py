"""Projects: made from a template and a network, built, run and driven; and their mistakes."""

import gzip
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import micro, relay
from sterna.micro.example import ExampleError, read_example, run_example
from sterna.micro.host_driven import BoardError, DrivenNetwork
from sterna.micro.platforms.handler import Project
from sterna.micro.platforms.network import Network, draw_inputs, model_source
from sterna.micro.project import (
    PLATFORMS,
    MicroTVMTemplateProjectNotFoundError,
    NotATemplateProjectError,
    TemplateProjectError,
)
from sterna.micro.project_api.client import ServerNotFoundError
from sterna.relay.arrays import numpy_dtype
from sterna.support.toolchain import CompileError, MissingToolError
from tests.micro.networks import assert_agree, build, mixed, run_here
from tests.support import require_program

EXAMPLE = {"project_type": "example_project"}
DRIVEN = {"project_type": "host_driven"}


@pytest.fixture(scope="module")
def program() -> Any:
    return build(mixed())


@pytest.fixture(scope="module")
def archive(program: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return micro.export_model_library_format(program, tmp_path_factory.mktemp("net") / "model.tar")


@pytest.fixture(scope="module")
def crt() -> Iterator[micro.TemplateProject]:
    template = micro.TemplateProject.from_directory("crt")
    yield template
    template.close()


def test_an_example_for_this_machine(program: Any, tmp_path: Path) -> None:
    require_program("cc")
    project = micro.generate_project("crt", program, tmp_path / "project", EXAMPLE)
    assert project.info().platform_name == "crt" and not project.info().is_template
    assert project.folder == tmp_path / "project"
    project.build({"warning_as_error": True})
    project.flash()
    made = run_example(project)
    inputs = draw_inputs(Project.load(project.folder).network)
    assert_agree(list(made.outputs.values()), run_here(mixed(), inputs))
    project.close()
    again = micro.GeneratedProject.from_directory(tmp_path / "project")
    assert_agree(list(run_example(again).outputs.values()), list(made.outputs.values()))
    again.close()


def test_inputs_of_ones_own(archive: Path, crt: micro.TemplateProject, tmp_path: Path) -> None:
    require_program("cc")
    rng = np.random.default_rng(7)
    inputs = {"image": rng.standard_normal((1, 1, 8, 8)).astype("float32"),
              "signal:0": rng.integers(-128, 128, (1, 16)).astype("int8")}
    np.savez(tmp_path / "inputs.npz", **inputs)  # type: ignore[arg-type]
    given = {**EXAMPLE, "sample_inputs": str(tmp_path / "inputs.npz")}
    project = crt.generate_project_from_mlf(archive, tmp_path / "project", given)
    project.build()
    assert_agree(list(run_example(project).outputs.values()), run_here(mixed(), inputs))
    project.close()
    for name, array, reason in (("image", np.zeros(3), "the file has float64"),
                                ("signals", inputs["image"], "the file has none")):
        np.savez(tmp_path / "inputs.npz", **{name: array})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=reason):
            crt.generate_project_from_mlf(archive, tmp_path / "other", given)
    (tmp_path / "inputs.npz").write_bytes(b"terns")
    with pytest.raises(ValueError, match=r"is no \.npz file"):
        crt.generate_project_from_mlf(archive, tmp_path / "other", given)
    assert not (tmp_path / "other").exists()


def test_elements_of_any_type(crt: micro.TemplateProject, tmp_path: Path) -> None:
    require_program("cc")
    kinds = ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64"]
    inputs = [relay.var(kind, shape=(3,), dtype=kind) for kind in kinds]
    mod = tvm.IRModule.from_expr(relay.Tuple(tuple(relay.reverse(x, axis=0) for x in inputs)))
    rng = np.random.default_rng(3)
    values = {kind: (rng.standard_normal(3) * 100).astype(numpy_dtype(kind)) for kind in kinds}
    np.savez(tmp_path / "inputs.npz", **values)  # type: ignore[arg-type]
    given = {**EXAMPLE, "sample_inputs": str(tmp_path / "inputs.npz")}
    project = crt.generate_project(build(mod), tmp_path / "project", given)
    project.build({"warning_as_error": True})
    for got, want in zip(run_example(project).outputs.values(), values.values(), strict=True):
        assert got.dtype == want.dtype and got.tobytes() == want[::-1].tobytes()
    project.close()


def test_a_network_that_the_host_drives(
    archive: Path, crt: micro.TemplateProject, tmp_path: Path
) -> None:
    require_program("cc")
    project = crt.generate_project_from_mlf(archive, tmp_path / "project", DRIVEN)
    project.build({"warning_as_error": True})
    network = Project.load(project.folder).network
    with project.transport() as stream:
        assert stream.timeouts().session_start_timeout_sec > 0
        stream.write(b"noise", 5.0)
        driven = DrivenNetwork(stream, network)
        for seed in range(3):
            rng = np.random.default_rng(seed)
            inputs = {"image": rng.standard_normal((1, 1, 8, 8)).astype("float32"),
                      "signal:0": rng.integers(-128, 128, (1, 16)).astype("int8")}
            assert_agree(driven(**inputs), run_here(mixed(), inputs))
        with pytest.raises(ValueError, match="no input 'picture'; it has image, signal:0"):
            driven.set_input("picture", 1)
        with pytest.raises(ValueError, match=r"takes int8\[1, 16\], not int64\[3\]"):
            driven.set_input("signal:0", np.zeros(3, "int64"))
        with pytest.raises(BoardError, match="no such input"):
            driven._ask("w", 9, b"1234")
        with pytest.raises(BoardError, match="size is not that"):
            driven._ask("w", 0, b"1234")
        with pytest.raises(BoardError, match="does not know"):
            driven._ask("?", 0, b"")
        with pytest.raises(BoardError, match="no such input or output"):
            driven._ask("g", 3, b"")
        stream.write(b"\xa5h\0\0\0\0\0\0WXYZ", 5.0)
        with pytest.raises(BoardError, match="damaged"):
            driven._reply("h", 0)
        driven.quit()
        with pytest.raises(micro.transport.TransportClosedError, match="ended with status 0"):
            stream.read(1, 5.0)
    with pytest.raises(micro.transport.TransportClosedError):
        stream.timeouts()
    with project.transport() as stream, pytest.raises(micro.transport.IoTimeoutError):
        stream.read(1, 0.05)
    project.close()


@pytest.mark.parametrize("project_type", [EXAMPLE, DRIVEN], ids=["example", "driven"])
@pytest.mark.parametrize("inside", [False, True], ids=["operands outside", "operands inside"])
def test_networks_in_pools_of_memory(
    inside: bool, project_type: dict[str, str], crt: micro.TemplateProject, tmp_path: Path
) -> None:
    require_program("cc")
    target = tvm.target.Target("c")
    pools = {
        "workspace_memory_pools": tvm.WorkspaceMemoryPools(
            [tvm.WorkspacePoolInfo("fast", [target], tvm.PoolInfoProperties(1024)),
             tvm.WorkspacePoolInfo("slow", [target], tvm.PoolInfoProperties(1 << 16))]),
        "constant_memory_pools": tvm.ConstantMemoryPools(
            [tvm.ConstantPoolInfo("flash", [target], [])]),
    }
    with tvm.transform.PassContext(opt_level=3, config={"tir.usmp.use_workspace_io": inside}):
        built = build(mixed(), target=target, **pools)
    project = crt.generate_project(built, tmp_path / "project", project_type)
    project.build({"warning_as_error": True})
    network = Project.load(project.folder).network
    assert [pool.member for pool in network.pools] == ["fast", "slow", "flash"]
    assert network.operands_in_pools == inside
    inputs = draw_inputs(network)
    if project_type is EXAMPLE:
        made = list(run_example(project).outputs.values())
    else:
        with project.transport() as stream:
            made = DrivenNetwork(stream, network)(**inputs)
    assert_agree(made, run_here(mixed(), inputs))
    project.close()


def test_files_and_definitions_of_ones_own(
    archive: Path, crt: micro.TemplateProject, tmp_path: Path
) -> None:
    require_program("cc")
    for archived, name in (("good.tar", "own/extra.c"), ("bad.tar", "../out.c")):
        with tarfile.open(tmp_path / archived, "w") as tar:
            info = tarfile.TarInfo(name)
            info.size = len(text := b"int own = LENGTH;\n")
            tar.addfile(info, io.BytesIO(text))
    with pytest.raises(ValueError, match="cannot be unpacked"):
        crt.generate_project_from_mlf(
            archive, tmp_path / "project", {"extra_files_tar": str(tmp_path / "bad.tar")}
        )
    assert not (tmp_path / "project").exists() and not (tmp_path / "out.c").exists()
    given = {"extra_files_tar": str(tmp_path / "good.tar")}
    project = crt.generate_project_from_mlf(archive, tmp_path / "project", given)
    with pytest.raises(CompileError, match="LENGTH"):
        project.build()
    project.build({"compile_definitions": ["-DLENGTH=3"]})
    with pytest.raises(ValueError, match=r"cmsis_path '.*nowhere' is no folder"):
        project.build({"cmsis_path": "nowhere"})
    project.close()


@pytest.mark.parametrize(
    ("template", "options", "message"),
    [
        ("zephyr", {"board": "mps2_an386"}, "needs the option project_type, one of example_pro"),
        ("zephyr", EXAMPLE, "needs the option board, one of mimxrt1050_evk, mps2_an386"),
        ("arduino", {**EXAMPLE, "board": "uno"}, "board is 'uno'; it is one of due, feathers2"),
        ("baremetal", {**EXAMPLE, "board": "microbit", "bord": 1}, "no option 'bord'; there are b"),
        ("crt", {"project_type": "demo"}, "project_type is 'demo'; it is one of example_project"),
        ("crt", {"verbose": "yes"}, "option verbose takes a bool, not 'yes'"),
    ],
)
def test_options_are_checked(
    template: str, options: dict[str, Any], message: str, program: Any, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        micro.generate_project(template, program, tmp_path / "project", options)
    assert not (tmp_path / "project").exists()


def test_defaults_and_boards() -> None:
    counts = {"arduino": 11, "zephyr": 12, "baremetal": 7, "crt": 0}
    assert set(PLATFORMS) == set(counts)
    for platform, count in counts.items():
        folder = micro.get_microtvm_template_projects(platform)
        template = micro.TemplateProject.from_directory(folder)
        options = {option.name: option for option in template.options}
        template.close()
        assert template.info().is_template and template.info().platform_name == platform
        defaults = {name: options[name].default for name in (
            "verbose", "cmsis_path", "warning_as_error", "compile_definitions", "extra_files_tar",
        )}
        assert list(defaults.values()) == [False, None, False, [], None]
        assert len((options["board"].choices or []) if count else []) == count
    assert "arduino_cli_cmd" not in options


def test_templates_and_projects_are_told_apart(
    program: Any, archive: Path, crt: micro.TemplateProject, tmp_path: Path
) -> None:
    made = crt.generate_project_from_mlf(archive, tmp_path / "project", {})
    made.close()
    with pytest.raises(NotATemplateProjectError):
        micro.TemplateProject.from_directory(tmp_path / "project")
    with pytest.raises(TemplateProjectError):
        micro.GeneratedProject.from_directory(micro.get_microtvm_template_projects("crt"))
    with pytest.raises(MicroTVMTemplateProjectNotFoundError, match="no template 'pico'; there are"):
        micro.get_microtvm_template_projects("pico")
    with pytest.raises(MicroTVMTemplateProjectNotFoundError, match="neither a platform"):
        micro.generate_project("nowhere", program, tmp_path / "other")
    with pytest.raises(ServerNotFoundError, match=r"no microtvm_api_server\.py"):
        micro.GeneratedProject.from_directory(tmp_path)
    with pytest.raises(FileExistsError, match="exists already"):
        crt.generate_project_from_mlf(archive, tmp_path / "project", {})
    with pytest.raises(TypeError, match="needs module"):
        micro.generate_project("crt", None, tmp_path / "other")
    with pytest.raises(TypeError, match="another name"):
        micro.generate_project("crt", program, tmp_path / "o", template_dir="crt")


def test_networks_that_no_project_can_hold(
    crt: micro.TemplateProject, program: Any, tmp_path: Path
) -> None:
    graph = relay.build(mixed(), target="llvm")
    with pytest.raises(ValueError, match='"interface-api": "c"'):
        crt.generate_project(graph, tmp_path / "project")
    with pytest.raises(ValueError, match="holds one network; the archive has 2"):
        crt.generate_project([program, build(mixed(), mod_name="two")], tmp_path / "project")
    small = tvm.IRModule.from_expr(relay.reverse(relay.var("x", shape=(4,), dtype="int4"), axis=0))
    with pytest.raises(ValueError, match="'x' is of type int4"):
        crt.generate_project(build(small), tmp_path / "project")
    with tarfile.open(tmp_path / "model.tar", "w") as tar:
        text = b'{"modules": {"default": {"interface": {}, "memory": {"functions": 3}}}}'
        info = tarfile.TarInfo("metadata.json")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    with pytest.raises(ValueError, match="not as this version writes it"):
        crt.generate_project_from_mlf(tmp_path / "model.tar", tmp_path / "project")
    whole = (tmp_path / "model.tar").read_bytes()
    for content in (b"terns", gzip.compress(whole), whole[:700]):
        (tmp_path / "model.tar").write_bytes(content)
        with pytest.raises(ValueError, match="is no archive of a network"):
            crt.generate_project_from_mlf(tmp_path / "model.tar", tmp_path / "project")
    assert not (tmp_path / "project").exists()


def test_names_that_c_would_stumble_over() -> None:
    row = {"name": 'a"\\?\n', "member": "a", "dtype": "bool", "shape": [0], "size": 0}
    network = Network.from_json({"name": "n", "inputs": [row], "outputs": [],
                                 "workspace_bytes": 0, "constant_bytes": 0,
                                 "pools": [], "operands_in_pools": False})
    text = model_source(network, None)
    assert '{"a\\042\\134\\077\\012", "bool[0]", \'u\', 1, 0, (void *)input_0}' in text


def test_what_is_no_example() -> None:
    made = read_example("output 0 float16[2] y\n0x3c00 \n0x4000 \nstack 12\ndone\n")
    np.testing.assert_array_equal(made.outputs["y"], np.array([1, 2], "float16"))
    assert made.stack_bytes == 12
    with pytest.raises(ExampleError, match="2 elements of int8 were expected, 1 were printed"):
        read_example("output 0 int8[2] y\n0x3c 60\ndone\n")


@pytest.mark.parametrize(
    ("template", "board", "tool"),
    [("zephyr", "nucleo_l4r5zi", "west"), ("arduino", "nano33ble", "arduino-cli")],
)
def test_a_missing_tool_is_named(
    template: str, board: str, tool: str, program: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    options = {**EXAMPLE, "board": board}
    project = micro.generate_project(template, program, tmp_path / "project", options)
    for method in (project.build, project.flash):
        with pytest.raises(MissingToolError, match=f"{tool} was not found; .*option {tool[:4]}"):
            method()
    project.close()


SCRIPT = '''
import json, sys, tarfile, tempfile
from pathlib import Path
import numpy as np
import sterna as tvm
from sterna import relay
from sterna.micro import export_model_library_format
from sterna.micro.project_api.client import ProjectAPIClient  # noqa: F401

x = relay.var("x", shape=(1, 1, 12, 12))
weight = relay.const(np.ones((4, 1, 3, 3), "float32"))
mod = tvm.IRModule.from_expr(relay.nn.softmax(relay.nn.batch_flatten(relay.nn.conv2d(x, weight))))
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(
        mod, target=tvm.target.Target("c -keys=arm_cpu -mcpu=cortex-m4"),
        executor=relay.backend.Executor("aot", {"unpacked-api": True}),
        runtime=relay.backend.Runtime("crt"))
folder = Path(tempfile.mkdtemp())
export_model_library_format(lib, folder / "model.tar")
with tarfile.open(folder / "model.tar") as tar:
    names = {n.removeprefix("./") for n in tar.getnames()}
    member = next(m for m in tar.getmembers() if m.name.endswith("metadata.json"))
    meta = json.load(tar.extractfile(member))
assert meta["version"] == 7 and "default" in meta["modules"]
assert {"codegen/host/include/tvmgen_default.h", "src/default.relay"} <= names
for template, options in (
    ("arduino", {"board": "nano33ble", "project_type": "example_project"}),
    ("zephyr", {"board": "mps2_an386", "project_type": "example_project"}),
    ("crt", {}),
):
    project = tvm.micro.generate_project(
        template_dir=template, module=lib, generated_project_dir=str(folder / template),
        options=options)
    assert any((folder / template).rglob("*.c")), template
project.build()
print("ok")
'''


def test_a_users_program(tmp_path: Path) -> None:
    require_program("cc")
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n" and not done.stderr


def test_a_network_without_inputs(crt: micro.TemplateProject, tmp_path: Path) -> None:
    require_program("cc")
    mod = tvm.IRModule.from_expr(relay.Function((), relay.const(np.arange(3, dtype="int16"))))
    project = crt.generate_project(build(mod), tmp_path / "project", EXAMPLE)
    project.build({"warning_as_error": True})
    np.testing.assert_array_equal(run_example(project).outputs["output"], [0, 1, 2])
    project.close()


def test_a_broken_description_is_named(tmp_path: Path) -> None:
    for text in ("[]", "{", '{"options": 5}', '{"options": {}, "name": "x"}', "\xff"):
        (tmp_path / "project.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(ValueError, match=r"project\.json' is no project's description"):
            Project.load(tmp_path)

"""Archives of networks: what is in them, and that it compiles and runs."""

import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.micro import UnsupportedInModelLibraryFormatError, export_model_library_format
from sterna.relay.backend import Executor, Runtime
from sterna.runtime.params import load_param_dict
from tests.support import require_program

C_INTERFACE = {"unpacked-api": True, "interface-api": "c"}


def network() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 8))
    weight = relay.const(np.arange(32, dtype="float32").reshape(4, 8))
    return tvm.IRModule.from_expr(relay.nn.softmax(relay.nn.dense(x, weight)))


def build(name: str = "default", **options: Any) -> Any:
    chosen = {"target": "c", "executor": Executor("aot", C_INTERFACE), "runtime": Runtime("crt")}
    return relay.build(network(), mod_name=name, **{**chosen, **options})


def unpack(path: Path, folder: Path) -> tuple[set[str], dict[str, Any]]:
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert all(m.uid == m.gid == m.mtime == 0 for m in members)
        archive.extractall(folder, filter="data")
        names = {m.name.removeprefix("./") for m in members if m.isfile()}
    return names, json.loads((folder / "metadata.json").read_text())


def test_a_network_in_c(tmp_path: Path) -> None:
    built = build()
    path = export_model_library_format(built, tmp_path / "model.tar")
    names, meta = unpack(path, tmp_path / "out")
    assert names == {
        "metadata.json", "codegen/host/src/default_lib0.c", "src/default.relay",
        "codegen/host/include/tvmgen_default.h", "parameters/default.params",
    }
    described = meta["modules"]["default"]
    assert meta["version"] == 7 and described["executors"] == ["aot"]
    assert described["style"] == "full-model" and described["target"] == [str(built.target)]
    (main,) = described["memory"]["functions"]["main"]
    assert main["inputs"] == {"x": {"dtype": "float32", "size": 32}}
    assert main["outputs"] == {"output": {"dtype": "float32", "size": 16}}
    assert main["workspace_size_bytes"] == built.memory_report().workspace_bytes
    assert main["io_size_bytes"] == 48 and main["constants_size_bytes"] == 128
    operators = described["memory"]["functions"]["operator_functions"]
    assert {row["function_name"] for row in operators} == {
        "tvmgen_default_fused_nn_dense", "tvmgen_default_fused_nn_softmax",
    }
    params = load_param_dict((tmp_path / "out" / "parameters" / "default.params").read_bytes())
    assert [array.nbytes for array in params.values()] == [128]
    source = tmp_path / "out" / "codegen" / "host" / "src" / "default_lib0.c"
    gcc, made = require_program("gcc"), tmp_path / "out.o"
    subprocess.run([gcc, "-std=c99", "-c", str(source), "-o", str(made)], check=True)


def test_the_same_bytes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    one, two = (
        export_model_library_format(build(), tmp_path / name).read_bytes() for name in ("a", "b")
    )
    assert one == two and b"1970-01-02 00:00:00Z" in one


def test_a_graph(tmp_path: Path) -> None:
    built = build("net", target="llvm", executor=None, runtime=None)
    names, meta = unpack(export_model_library_format(built, tmp_path / "m.tar"), tmp_path / "out")
    assert {"codegen/host/lib/net_lib0.o", "executor-config/graph/net.graph", "runtime/sterna.c",
            "runtime/sterna.h"} <= names
    memory = meta["modules"]["net"]["memory"]
    assert memory["functions"]["main"][0]["inputs"] == {"x": {"dtype": "float32", "size": 32}}
    assert meta["modules"]["net"]["executors"] == ["graph"]
    assert {row["size_bytes"] for row in memory["sids"]} >= {32, 128}


def test_several_networks(tmp_path: Path) -> None:
    built = [build("one"), build("two")]
    names, meta = unpack(export_model_library_format(built, tmp_path / "m.tar"), tmp_path / "out")
    assert set(meta["modules"]) == {"one", "two"} and "codegen/host/src/two_lib0.c" in names
    with pytest.raises(ValueError, match="two networks are named one"):
        export_model_library_format([built[0], built[0]], tmp_path / "n.tar")
    assert not (tmp_path / "n.tar").exists()


def test_functions(tmp_path: Path) -> None:
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    module = tvm.build(te.create_schedule(b.op), [a, b], target="c", name="plus")
    names, meta = unpack(export_model_library_format(module, tmp_path / "m.tar"), tmp_path / "out")
    assert names == {"metadata.json", "codegen/host/src/lib0.c", "src/tir-1.txt"}
    assert meta["style"] == "operator" and meta["model_name"] == "plus" and meta["version"] == 7
    other = tvm.build(te.create_schedule(b.op), [a, b], target="c", name="other")
    module.import_module(other)
    with pytest.raises(UnsupportedInModelLibraryFormatError, match="imports other modules"):
        export_model_library_format(module, tmp_path / "n.tar")


def test_what_is_no_network(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="IRModule is neither"):
        export_model_library_format(network(), tmp_path / "m.tar")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing to export"):
        export_model_library_format([], tmp_path / "m.tar")

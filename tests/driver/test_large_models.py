"""Models whose data is too large to be linked: it lies behind the library, and is mapped."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sterna
from sterna import relay
from sterna.codegen import model_data
from sterna.support.elf_segment import PAGE


def network(columns: int = 24) -> sterna.IRModule:
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(2, 16))
    weights = [rng.standard_normal(shape, "float32") for shape in ((16, 16), (columns, 16))]
    made: relay.RelayExpr = x
    for weight in weights:
        made = relay.nn.relu(relay.nn.dense(made, relay.const(weight)))
    return sterna.IRModule.from_expr(relay.Function((x,), made))


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("libraries here are not of ELF")
    monkeypatch.setattr(model_data, "MOST_LINKED", 0)


@pytest.mark.usefixtures("everything_is_large")
def test_data_behind_a_library_is_found(tmp_path: Path) -> None:
    model, x = sterna.compile(network()), np.ones((2, 16), "float32")
    path = tmp_path / "large.so"
    model.export(path)
    loaded = sterna.load(path)
    np.testing.assert_array_equal(loaded(x), model(x))
    mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()
              if line.endswith(path.name)]
    assert any(line[1] == "r--p" and int(line[2], 16) and int(line[2], 16) % PAGE == 0
               for line in mapped)
    content = path.read_bytes()
    model.export(path)
    assert path.read_bytes() == content  # the same input gives the same bytes


@pytest.mark.usefixtures("everything_is_large")
def test_a_damaged_part_behind_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "large.so"
    sterna.compile(network()).export(path)
    content = bytearray(path.read_bytes())
    content[-400] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        sterna.load(path)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("form", [".o", ".a", ".tar"])
def test_other_forms_are_refused(form: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"goes behind a linked library: export it as \.so.*\{form}"):
        sterna.compile(network()).export(tmp_path / f"large{form}")
    assert not list(tmp_path.iterdir())


LARGE = """
import resource, sys
from pathlib import Path
import numpy as np, onnx
from onnx import TensorProto, helper
import sterna

folder, layers, rows, columns = Path(sys.argv[1]), *map(int, sys.argv[2:])
size = rows * columns * 4
weights, nodes, value = [], [], "x"
for place in range(layers):
    tensor = TensorProto(
        name=f"w{place}", data_type=TensorProto.FLOAT, dims=(rows, columns),
        data_location=TensorProto.EXTERNAL,
    )
    for key, told in (("location", "weights"), ("offset", place * size), ("length", size)):
        tensor.external_data.add(key=key, value=str(told))
    weights.append(tensor)
    nodes.append(helper.make_node("MatMul", ["x", f"w{place}"], [f"y{place}"]))
outs = [helper.make_tensor_value_info(f"y{p}", 1, (1, columns)) for p in range(layers)]
graph = helper.make_graph(
    nodes, "large", [helper.make_tensor_value_info("x", 1, (1, rows))], outs, weights
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "m.onnx")
with open(folder / "weights", "wb") as file:
    file.truncate(layers * size)  # a file with holes: zeros that take no room
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = sterna.compile(folder / "m.onnx")
model.export(folder / "m.so")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = sterna.load(folder / "m.so")(np.ones((1, rows), "float32"))
assert not np.any(out[0]) and (folder / "m.so").stat().st_size > layers * size
print((peak - before) * 1024 / (layers * size))
"""


def test_weights_over_two_gigabytes(tmp_path: Path) -> None:
    """Takes minutes and gigabytes: only where STERNA_TEST_LARGE asks for it."""
    if not os.environ.get("STERNA_TEST_LARGE"):
        pytest.skip("STERNA_TEST_LARGE=1 runs it")
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path), "9", "8192", "8192"],
        capture_output=True, text=True, env={**os.environ, "STERNA_CACHE": "off"},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= 1.5

"""load, tune, compile and run, as classic programs call them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sterna.contrib import tvmc


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = np.arange(12, dtype="float32").reshape(4, 3) / 10
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_from_file_to_result(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = tvmc.load(str(model))
    loaded.summary()
    assert "nn.relu" in capsys.readouterr().out
    loaded.save(tmp_path / "kept")
    again = tvmc.TVMCModel(model_path=tmp_path / "kept")
    package = tvmc.compile(again, target="llvm", package_path=tmp_path / "small.so")
    given = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    result = tvmc.run(tvmc.TVMCPackage(package.package_path), device="cpu", inputs={"x": given})
    weight = np.arange(12, dtype="float32").reshape(4, 3) / 10
    np.testing.assert_allclose(result.get_output("output_0"), np.maximum(given @ weight, 0), 1e-5)
    assert "mean (ms)" in str(result) and str(result).endswith("Output Names:\n ['output_0']")
    assert len(result.times.results) == 10 and result.times.mean > 0
    result.save(tmp_path / "out.npz")
    assert np.load(tmp_path / "out.npz")["output_0"].shape == (2, 3)
    zeros = tvmc.run(package, fill_mode="zeros", repeat=1).get_output("output_0")
    assert not zeros.any()


def test_mistakes_are_named(tmp_path: Path, model: Path) -> None:
    with pytest.raises(tvmc.TVMCException, match="there is no package at"):
        tvmc.TVMCPackage(tmp_path / "none.so")
    with pytest.raises(tvmc.TVMCException, match="is made of a module, or"):
        tvmc.TVMCModel()
    with pytest.raises(tvmc.TVMCException, match="load has no option color"):
        tvmc.load(model, color="red")
    package = tvmc.compile(tvmc.load(model), target="llvm", package_path=tmp_path / "small.so")
    with pytest.raises(tvmc.TVMCException, match="device is cpu, cuda, cl, opencl, micro, not"):
        tvmc.run(package, device="tpu")
    with pytest.raises(tvmc.TVMCException, match="output_format is so or mlf, not 'zip'"):
        tvmc.compile(tvmc.load(model), target="llvm", output_format="zip")
    with pytest.raises(tvmc.TVMCException, match="tune has no option color"):
        tvmc.tune(tvmc.load(model), target="llvm", color="red")
    with pytest.raises(tvmc.TVMCException, match="is lent by a tracker; give its hostname"):
        tvmc.tune(tvmc.load(model), target="llvm", rpc_key="pi")
    with pytest.raises(tvmc.TVMCException, match="fill_mode is random, zeros, ones"):
        tvmc.run(package, fill_mode="twos")
    with pytest.raises(tvmc.TVMCException, match="there is no output z"):
        tvmc.run(package, repeat=1).get_output("z")

"""sterna quantize: samples from a folder, a report, a QDQ model; and what is wrong with either."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.conftest import Sterna
from tests.quantization.networks import dense
from tests.support import require_module


@pytest.fixture
def data(folder: Path) -> Path:
    """A model net.onnx and a folder of samples for it."""
    onnx.save(dense(), folder / "net.onnx")
    (folder / "data").mkdir()
    rng = np.random.default_rng(0)
    for place in range(8):
        sample = rng.normal(0, 1, (1, 4)).astype("float32")
        if place % 2:
            np.savez(folder / "data" / f"{place}.npz", x=sample)
        else:
            np.save(folder / "data" / f"{place}.npy", sample)
    (folder / "data" / "notes.txt").write_text("no sample")
    return folder


def test_a_folder_of_samples_makes_a_model_of_integers(sterna: Sterna, data: Path) -> None:
    done = sterna("quantize", "net.onnx", "--data", "data", "-o", "int8.onnx", "--plot", "plot.svg",
                  "--keep-accuracy", "50%")
    assert done.status == 0, done.err
    assert "product" in done.out and "1 of 1 layers in integers" in done.out
    assert "of 8 samples" in done.out and "wrote int8.onnx" in done.out
    assert (data / "plot.svg").read_text().startswith("<svg")
    kinds = {node.op_type for node in onnx.load(data / "int8.onnx").graph.node}
    assert kinds == {"QuantizeLinear", "DequantizeLinear", "MatMul"}


def test_a_file_that_is_far_out_is_named(sterna: Sterna, data: Path) -> None:
    np.save(data / "data" / "9.npy", np.full((1, 4), 1e6, "float32"))
    done = sterna("quantize", "net.onnx", "--data", "data", "-o", "int8.onnx")
    assert done.status == 0, done.err
    assert "of 8 samples\nleft out as far from the others: sample 8 ('9.npy') reaches 1e+06 in " \
        "input 'x', where half of the samples stay below" in done.out


def test_random_samples_and_json(sterna: Sterna, data: Path) -> None:
    done = sterna("quantize", "net.onnx", "--random", "3", "-o", "int8.onnx", "--json")
    assert done.status == 0, done.err
    assert done.data["samples"] == 3 and done.data["layers"][0]["name"] == "product"


@pytest.mark.parametrize(("words", "status", "message"), [
    (("--data", "nowhere"), 2, "--data 'nowhere' is no folder"),
    (("--data", "empty"), 2, "--data 'empty' holds no samples"),
    (("--data", "wrong"), 3,
     "sample 0 ('a.npy') gives input 'x' the shape (2, 7); it takes (1, 4)"),
    (("--data", "torn"), 3, "is no file of arrays"),
    ((), 2, "one of the arguments --data --random is required"),
    (("--random", "0"), 2, "'0' is no number of at least 1"),
    (("--random", "2", "--keep-accuracy", "many"), 2, "'many' is no fraction, such as 1%"),
    (("--random", "2", "--keep-float", "other"), 3, "keep_float names 'other'"),
])
def test_what_is_wrong_is_named(
    sterna: Sterna, data: Path, words: tuple[str, ...], status: int, message: str
) -> None:
    for name in ("empty", "wrong", "torn"):
        (data / name).mkdir()
    np.save(data / "wrong" / "a.npy", np.zeros((2, 7), "float32"))
    (data / "torn" / "a.npy").write_bytes(b"tern")
    done = sterna("quantize", "net.onnx", *words, "-o", "int8.onnx")
    assert (done.status, message in done.err) == (status, True), done.err
    assert not (data / "int8.onnx").exists()


def test_the_result_is_named_as_a_model(sterna: Sterna, data: Path) -> None:
    done = sterna("quantize", "net.onnx", "--random", "1", "-o", "int8.so")
    assert done.status == 2 and "the name must end in .onnx" in done.err


def test_a_plot_is_named_as_what_it_is(sterna: Sterna, data: Path) -> None:
    done = sterna(
        "quantize", "net.onnx", "--random", "1", "-o", "int8.onnx", "--plot", "errors.png")
    assert done.status == 2 and "--plot 'errors.png': the name must end in .svg" in done.err


def test_one_array_is_no_sample_of_two_inputs(sterna: Sterna, data: Path) -> None:
    done = sterna("quantize", "pair.onnx", "--data", "data", "-o", "int8.onnx")
    assert done.status == 2 and "is one array; the model has the inputs" in done.err


def test_pictures_are_samples(sterna: Sterna, data: Path) -> None:
    require_module("PIL")
    from PIL import Image

    (data / "pictures").mkdir()
    Image.new("RGB", (9, 9), "orange").save(data / "pictures" / "a.png")
    done = sterna("quantize", "net.onnx", "--data", "pictures", "-o", "int8.onnx")
    assert done.status == 3 and "which is no picture of 1, 3 or 4 channels" in done.err


def test_broken_pictures_are_named(tmp_path: Path) -> None:
    require_module("PIL")
    from PIL import Image

    from sterna.model.arguments import TensorSpec
    from sterna.model.images import ImageOptions, image_array

    path = tmp_path / "a.png"
    Image.new("RGB", (9, 9), "orange").save(path)
    whole = path.read_bytes()
    for broken, message in ((b"tern", "is no picture"), (whole[:50], "is a broken picture")):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=f"a.png' {message}"):
            image_array(path, TensorSpec("x", (1, 3, 8, 8), "float32"), ImageOptions())

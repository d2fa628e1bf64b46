"""sterna run: inputs of every kind, outputs, the largest scores."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.cli.conftest import Sterna
from tests.model.networks import by_rate, dense_by_numpy, made
from tests.support import FOREIGN, require_module

IMAGE = np.linspace(-1, 1, 12, dtype="float32").reshape(2, 6)


def test_arrays_from_files(sterna: Sterna, folder: Path) -> None:
    np.save("image.npy", IMAGE)
    for given in ("image.npy", "image=image.npy"):
        done = sterna("run", "dense.onnx", "-i", given, "-o", "out.npz")
        assert done.status == 0 and "scores" in done.out
        assert all(line.endswith("so far") for line in done.err.splitlines()), "on a busy machine"
        with np.load("out.npz") as saved:
            np.testing.assert_allclose(saved["scores"], dense_by_numpy(IMAGE), rtol=1e-5)
    np.savez("both.npz", left=np.ones((2, 3), "f"), right=np.ones((2, 3), "f"))
    data = sterna("run", "pair.onnx", "-i", "both.npz", "--json").data
    assert data["outputs"]["sum"]["max"] == 2 and data["outputs"]["difference"]["max"] == 0


def test_random_inputs_depend_on_the_seed_alone(sterna: Sterna) -> None:
    first, again, other = (
        sterna("run", "dense.onnx", "--random", "--seed", seed, "--json").data for seed in "112"
    )
    assert first == again != other


def test_the_largest_scores_by_label(sterna: Sterna, folder: Path) -> None:
    np.save("image.npy", IMAGE)
    Path("labels.txt").write_text("gull\ntern\nskua\nauk\n")
    words = ("run", "dense.onnx", "-i", "image.npy", "--top", "2", "--labels", "labels.txt")
    expected = np.argsort(-dense_by_numpy(IMAGE), axis=1, kind="stable")[:, :2]
    top = sterna(*words, "--softmax", "--json").data["top"]
    assert [row["class"] for row in top] == expected.reshape(-1).tolist()
    assert [row["row"] for row in top] == [0, 0, 1, 1] and 0 < top[0]["score"] < 1
    assert "skua" in sterna(*words).out
    Path("labels.txt").write_text("gull\n")
    assert "1 labels for 4 scores" in sterna(*words).err


@pytest.mark.parametrize(
    ("labels", "best"), [("sea gull tern skua", "tern"), ("gull tern skua", "tern"),
                         ("gull tern", "gull"), ("sea sky gull tern skua", None)],
)
def test_scores_of_pictures_of_one_pixel(
    sterna: Sterna, folder: Path, labels: str, best: str | None
) -> None:
    """Lists of labels have the background class as their first one, or leave it out."""
    node = helper.make_node("Identity", ["x"], ["y"], name="same")
    onnx.save(made([node], {"x": [1, 3, 1, 1]}, {"y": [1, 3, 1, 1]}), "same.onnx")
    np.save("x.npy", np.array([1, 3, 2], "float32").reshape(1, 3, 1, 1))
    Path("labels.txt").write_text("\n".join(labels.split()))
    done = sterna("run", "same.onnx", "-i", "x.npy", "--top", "2", "--labels", "labels.txt",
                  "--json")
    assert done.status == (3 if best is None else 0)
    if best is not None:
        top = done.data["top"]
        assert [row["class"] for row in top] == [1, 2] and top[0]["label"] == best


def test_pictures(sterna: Sterna, folder: Path) -> None:
    require_module("PIL")
    from PIL import Image

    for shape in ([1, 3, 4, 6], [1, 4, 6, 3]):
        node = helper.make_node("Identity", ["x"], ["y"], name="same")
        onnx.save(made([node], {"x": shape}, {"y": shape}), "same.onnx")
        pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype="uint8")
        Image.fromarray(pixels).save("tern.png")
        words = ["run", "same.onnx", "-i", "tern.png", "-o", "out.npz"]
        assert sterna(*words, "--imagenet", "--bgr").status == 0
        mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
        expected = (pixels[..., ::-1] / 255 - mean) / std
        if shape[1] == 3:
            expected = expected.transpose(2, 0, 1)
        with np.load("out.npz") as saved:
            np.testing.assert_allclose(saved["y"][0], expected, rtol=1e-5, atol=1e-6)


def test_pictures_are_cut_or_stretched_to_size(sterna: Sterna, folder: Path) -> None:
    require_module("PIL")
    from PIL import Image

    node = helper.make_node("Identity", ["x"], ["y"], name="same")
    onnx.save(made([node], {"x": [1, 1, 8, 8]}, {"y": [1, 1, 8, 8]}), "same.onnx")
    wide = np.zeros((8, 24), "uint8")
    wide[:, 8:16] = 255
    Image.fromarray(wide).save("wide.png")
    words = ["run", "same.onnx", "-i", "wide.png", "--json"]
    assert sterna(*words).data["outputs"]["y"]["min"] == 1  # the middle alone
    assert sterna(*words, "--stretch").data["outputs"]["y"]["min"] == 0
    small = sterna(*words, "--resize", "4")
    assert small.status == 3 and "smaller than the 8 x 8 that the model takes" in small.err
    Path("wide.png").write_bytes(b"tern")
    assert "no picture that Pillow knows" in sterna(*words).err


def test_pictures_need_pillow(
    sterna: Sterna, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    (folder / "tern.png").write_bytes(b"")
    done = sterna("run", "dense.onnx", "-i", "tern.png")
    assert done.status == 5 and "pip install pillow" in done.err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["dense.onnx"], 3, "missing: image: float32[2, 6]"),
        (["dense.onnx", "-i", "missing.npy"], 3, "No such file or directory: 'missing.npy'"),
        (["dense.onnx", "-i", "wide.npy"], 3, "takes float32[2, 6], but float32[2, 7] was given"),
        (["dense.onnx", "-i", "double.npy"], 3, "but float64[2, 6] was given"),
        (["dense.onnx", "-i", "broken.npy"], 3, "'broken.npy' is no file of arrays"),
        (["dense.onnx", "-i", "imag=wide.npy"], 3, "did you mean 'image'?"),
        (["dense.onnx", "-i", "wide.txt"], 2, "an .npy, an .npz or a picture"),
        (["dense.onnx", "-i", "wide.npy", "-i", "wide.npy"], 2, "'image' is given twice"),
        (["pair.onnx", "-i", "wide.npy"], 2, "say which of left, right it is"),
        (["dense.onnx", "--random", "-o", "out.txt"], 2, "must end in .npz"),
        (["dense.onnx", "--random", "--softmax"], 2, "go with --top"),
        (["dense.onnx", "--random", "--top", "1", "--scores", "no"], 2, "outputs are scores"),
        (["dense.onnx", "--random", "--integers", "3"], 2, "no FROM:BELOW"),
        (["a.so", "--random", "--target", "c"], 2, "compiled already; --target has no effect"),
        (["a.so", "--random"], 3, "cannot load 'a.so'"),
        (["dense.onnx", "--random", "--target", f"llvm -mtriple={FOREIGN}"],
         4, "another machine than this"),
    ],
)
def test_mistakes_are_one_message(
    sterna: Sterna, folder: Path, words: list[str], status: int, message: str
) -> None:
    np.save("wide.npy", np.ones((2, 7), "float32"))
    np.save("double.npy", np.ones((2, 6)))
    Path("broken.npy").write_bytes(b"tern")
    done = sterna("run", *words)
    assert (done.status, done.out) == (status, "")
    assert message in done.err and "Traceback" not in done.err


def test_a_wrong_setting_names_no_target(
    sterna: Sterna, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STERNA_NUM_THREADS", "abc")
    said = sterna("run", "dense.onnx", "--random").err
    assert said.startswith("sterna: STERNA_NUM_THREADS is 'abc'; expected a whole number")


def test_an_input_is_fixed(sterna: Sterna, folder: Path) -> None:
    onnx.save(by_rate(), "by_rate.onnx")
    words = ("run", "by_rate.onnx", "--shape", "n:8", "--random", "--json")
    done = sterna(*words, "--fix", "rate=16000")
    assert done.status == 0 and done.data["outputs"]["y"]["type"] == "float32[1, 2]"
    done = sterna(*words)
    assert done.status == 4 and "node 'by_rate' (If)" in done.err and "--fix NAME=VALUE" in done.err
    assert sterna(*words, "--fix", "rate=fast").status == 2


def test_open_models_run_as_they_are_and_from_files(sterna: Sterna, folder: Path) -> None:
    done = sterna("compile", "open.onnx", "-o", "open.so", "--shape", "batch:1,8")
    assert done.status == 0 and "for any shapes of image: float32[batch, 6]" in done.out
    for rows in (1, 2):
        np.save("image.npy", IMAGE[:rows])
        for model in ("open.onnx", "open.so"):
            assert sterna("run", model, "-i", "image.npy", "-o", "out.npz").status == 0
            with np.load("out.npz") as saved:
                wanted = dense_by_numpy(IMAGE[:rows])
                np.testing.assert_allclose(saved["scores"], wanted, rtol=1e-5)
    np.save("image.npy", np.zeros((9, 6), "float32"))
    done = sterna("run", "open.so", "-i", "image.npy")
    assert done.status == 3 and "'batch', which was compiled for 1 to 8" in done.err
    assert sterna("profile", "open.onnx").status == 3

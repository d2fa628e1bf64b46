"""Formats of models: how they are recognised, refused and added."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
import pytest

import sterna
from sterna import relay
from sterna.frontend import Format, recognise, register_format
from sterna.frontend import formats as registry
from sterna.frontend.files import read_whole
from sterna.frontend.format import FormatNotImportable
from sterna.frontend.names import Names
from sterna.model import OpenShapeError
from sterna.support.errors import MissingPackageError, OpNotImplemented
from tests.frontend.toy_format import FORMAT, ToyModel
from tests.model.networks import dense
from tests.support import ROOT, clean_environment, require_program

TOY_FILE = "tests.frontend.toy_format"
TOY = """toy model
input x float32 batch 3
weight w 2x3 1 2 3 4 5 6
dense hidden x w
relu y hidden
output y
"""
X = np.array([[1, -1, 2], [0, 3, -4]], "float32")
Y = np.maximum(X @ np.array([[1, 2, 3], [4, 5, 6]], "float32").T, 0)


@pytest.fixture
def toy() -> Iterator[Format]:
    """The toy format, while a test runs."""
    yield register_format(FORMAT)
    registry._registered.remove(FORMAT)


# ---- a format of one's own ----


def test_a_format_of_ones_own(toy: Format, tmp_path: Path) -> None:
    path = tmp_path / "model.toy"
    path.write_text(TOY)
    for model in (path, str(path), TOY.encode(), ToyModel(TOY)):
        compiled = sterna.compile(model, shapes={"batch": 2})
        np.testing.assert_allclose(compiled(X), Y)
        assert [str(spec) for spec in compiled.outputs] == ["y: float32[2, 2]"]
    with pytest.raises(OpenShapeError, match=r"x: \(batch, 3\)"):
        sterna.compile(path)
    with pytest.raises(ValueError, match=r"shapes names 'z', which is no input.* inputs are x"):
        sterna.compile(path, shapes={"z": (2, 3)})
    with pytest.raises(TypeError, match="a toy model has its own"):
        sterna.compile(path, params={"w": X})


def test_errors_name_the_format_and_the_nodes(toy: Format) -> None:
    strange = TOY.replace("relu", "swim").replace("dense", "dive") + "swim z x\n"
    with pytest.raises(OpNotImplemented) as raised:
        sterna.compile(strange.encode(), shapes={"batch": 2})
    assert str(raised.value).splitlines() == [
        "these parts of the toy model have no converter:", "  dive: hidden", "  swim: y, z",
    ]
    with pytest.raises(ValueError, match=r"node 'hidden' \(dense\): "):
        sterna.compile(TOY.replace("2x3", "3x2").encode(), shapes={"batch": 2})
    with pytest.raises(ValueError, match="output 'q' is the result of no node"):
        sterna.compile((TOY + "output q\n").encode(), shapes={"batch": 2})
    with pytest.raises(ValueError, match="weight 'w' is there twice"):
        sterna.compile((TOY + "weight w 1 1\n").encode(), shapes={"batch": 2})
    with pytest.raises(ValueError, match="the toy model has no output"):
        sterna.compile(TOY.replace("output y\n", "").encode(), shapes={"batch": 2})


def test_weights_may_stay_parameters(toy: Format) -> None:
    options = sterna.frontend.ImportOptions({"x": (2, 3)}, freeze_params=False)
    module, params = toy.load_model(ToyModel(TOY), options)
    assert [var.name_hint for var in module["main"].params] == ["x", "w"] and list(params) == ["w"]


def test_an_installed_format_works_from_the_command_line(tmp_path: Path) -> None:
    require_program("cc")
    shutil.copy(ROOT / "tests" / "frontend" / "toy_format.py", tmp_path)
    about = tmp_path / "toy_format-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-format\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[sterna.formats]\ntoy = toy_format:FORMAT\n")
    (tmp_path / "model.toy").write_text(TOY)
    environment = clean_environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sterna", *words], cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=300,
        )

    done = command("compile", "model.toy", "--shape", "batch:2", "-o", "model.so")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(sterna.load(tmp_path / "model.so")(X), Y)
    assert "--shape x:1,3" in command("compile", "model.toy", "-o", "model.so").stderr
    assert "(.lite, .onnx, .pt, .pt2, .pth, .tflite, .toy)" in command("compile", "--help").stdout


def test_an_installed_format_that_is_broken_hurts_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [metadata.EntryPoint(name, value, registry.ENTRY_POINTS) for name, value in (
        ("gone", "no_such_module:FORMAT"), ("empty", "json:FORMAT"), ("ours", f"{TOY_FILE}:FORMAT"),
    )]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    look = registry._of_other_packages.__wrapped__
    with pytest.warns(UserWarning) as told:
        assert look() == (FORMAT,)
    assert [str(warning.message).split(" of ")[0] for warning in told] == [
        "the format 'empty'", "the format 'gone'",
    ]
    points.append(metadata.EntryPoint("text", "string:digits", registry.ENTRY_POINTS))
    with pytest.warns(UserWarning), pytest.raises(TypeError, match=r"no Format but str"):
        look()


# ---- recognising ----


def test_bytes_count_more_than_names(tmp_path: Path) -> None:
    for name in ("model.onnx", "model.pb", "model", "MODEL.ONNX", "model.tflite"):
        onnx.save_model(dense(), tmp_path / name, format="protobuf")
        assert recognise(tmp_path / name).name == "ONNX"
    compiled = sterna.compile(tmp_path / "model.pb")
    assert compiled.inputs[0].name == "image"
    assert recognise(dense()).name == recognise(dense().SerializeToString()).name == "ONNX"


NODE = b"\x0a\x0fPlaceholder_name"
KNOWN = {
    "a.pb": (b"\x0a\x80\x01" + NODE, "TensorFlow"),
    "saved_model.pb": (b"\x08\x01\x12\xad\x89\x06\x0a\x10\x12\x05", "TensorFlow"),
    "a.keras": (b"PK\x03\x04" + bytes(22) + b"\x0d\0\0\0metadata.json", "Keras"),
    "a.h5": (b"\x89HDF\r\n\x1a\n" + bytes(8), "Keras HDF5"),
    "a.safetensors": (b"\x40\0\0\0\0\0\0\0" + b'{"w":{"data_offsets":[0,4]}}', "safetensors"),
    "a.xml": (b'<?xml version="1.0"?>\n<net name="a" version="11">\n<layers>', "OpenVINO"),
    "a.mlmodel": (b"\x08\x05\x12\x10\x0a\x0e\x0a\x05image", "Core ML"),
    "a.gguf": (b"GGUF\x03\0\0\0", "GGUF"),
}


@pytest.mark.parametrize("name", list(KNOWN))
def test_formats_without_an_importer_are_named_with_the_way_out(tmp_path: Path, name: str) -> None:
    head, format_name = KNOWN[name]
    called = f"an {format_name}" if format_name[0] == "O" else f"a {format_name}"
    for own in (name, "other.onnx"):
        path = tmp_path / own
        path.write_bytes(head)
        with pytest.raises(FormatNotImportable) as raised:
            sterna.compile(path)
        assert str(raised.value).startswith(
            f"'{path}' is {called} model; such models cannot be imported yet, but ONNX can: "
        )
        assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(ValueError, match=f"other.onnx is no ONNX model: it is {called} mod"):
        relay.frontend.from_onnx(path)
    if Path(name).suffix != ".h5":
        return
    path = tmp_path / f"empty{Path(name).suffix}"
    path.write_bytes(b"")
    with pytest.raises(FormatNotImportable, match="Keras HDF5"):
        sterna.compile(path)


def test_a_name_alone_tells_some_formats(tmp_path: Path) -> None:
    (tmp_path / "a.pdmodel").write_bytes(b"tern")
    with pytest.raises(FormatNotImportable, match=r"a PaddlePaddle model; .*paddle2onnx"):
        sterna.compile(tmp_path / "a.pdmodel")


def test_folders_and_objects_are_recognised_too(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(KNOWN["saved_model.pb"][0])
    with pytest.raises(FormatNotImportable, match=r"is a TensorFlow model.* --saved-model"):
        sterna.compile(tmp_path)
    module = type("Module", (), {"__module__": "keras.src.models.model"})
    with pytest.raises(FormatNotImportable, match=r"this is a Keras model; .*\.export\("):
        sterna.compile(type("Net", (module,), {})())
    with pytest.raises(AttributeError, match=r"no 'from_keras': .*\.export\("):
        relay.frontend.from_keras  # noqa: B018
    with pytest.raises(AttributeError, match="no importer 'from_paper'"):
        relay.frontend.from_paper  # noqa: B018


def test_what_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tern"
    path.write_bytes(b"tern")
    with pytest.raises(
        ValueError, match=r"model\.tern' is no model that can be imported: .* ONNX \(\.onnx\)"
    ):
        sterna.compile(path)
    with pytest.raises(ValueError, match=r"these bytes are no model.*: ONNX \(\.onnx\)"):
        sterna.compile(b"tern")
    with pytest.raises(FileNotFoundError):
        sterna.compile(tmp_path / "missing.tern")
    with pytest.raises(ValueError, match="is a folder and no model; a model is a file: ONNX"):
        sterna.compile(tmp_path)


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match=r"pipe\.onnx' is no plain file"):
        sterna.compile(pipe)  # and nobody waits for a writer
    with pytest.raises(ValueError, match=r"pipe\.onnx' is no plain file"):
        relay.frontend.from_onnx(pipe)
    large = tmp_path / "large.onnx"
    with open(large, "wb") as file:
        file.truncate(1 << 32)
    with pytest.raises(ValueError, match=r"has 4294967296 bytes.* save_as_external_data=True"):
        relay.frontend.from_onnx(large)
    with pytest.raises(ValueError, match=r"has 4294967296 bytes, more than 16$"):
        read_whole(large, 16)


def test_what_a_format_needs_is_told(tmp_path: Path) -> None:
    needy = Format("needy", (".needy",), lambda head: False, lambda m, o: m, needs="no_such_thing")
    with pytest.raises(MissingPackageError, match=r"model of needy needs .*install no_such_thing"):
        needy.load_model("x", sterna.frontend.ImportOptions())
    with pytest.raises(ValueError, match=r"the suffix 'onnx' is not like '\.onnx'"):
        Format("bad", ("onnx",), lambda head: False)
    with pytest.raises(TypeError, match="takes a Format, not str"):
        register_format("toy")  # type: ignore[arg-type]


def test_names_are_there_once() -> None:
    names = Names(["x"])
    assert [names.unique(n) for n in ("x", "y", "y", "y_1", "y")] == ["x_1", "y", "y_1", "y_1_1",
                                                                       "y_2"]

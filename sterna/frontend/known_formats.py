"""Formats that are recognised and not imported yet, each with the way to a model that can be.

An importer takes its row out of here when it comes.
"""

from collections.abc import Callable
from functools import partial

from sterna.frontend.format import Format

ZIP = b"PK\x03\x04"
HDF5 = b"\x89HDF\r\n\x1a\n"


def first_in_zip(head: bytes) -> bytes:
    """The name of the first file of an archive; empty for what is none."""
    if not head.startswith(ZIP) or len(head) < 30:
        return b""
    return head[30 : 30 + int.from_bytes(head[26:28], "little")]


def _is_keras(head: bytes) -> bool:
    return first_in_zip(head) in (b"metadata.json", b"config.json")


def _is_tensorflow(head: bytes) -> bool:
    """A SavedModel, which begins with its version, or a GraphDef, which begins with a node."""
    if head.startswith(b"\x08\x01\x12"):
        return _behind_length(head, 3)[:1] == b"\x0a"
    node = _behind_length(head, 1) if head.startswith(b"\x0a") else b""
    name = node[2 : 2 + node[1]] if node.startswith(b"\x0a") and len(node) > 1 else b""
    return bool(name) and name.decode("ascii", "replace").isprintable()


def _behind_length(head: bytes, at: int) -> bytes:
    """What follows the length of a field, in the encoding of protocol buffers."""
    while at < len(head) and head[at] >= 0x80:
        at += 1
    return head[at + 1 :]


def _begins_with(magic: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(magic)


def _never(head: bytes) -> bool:
    """Nothing tells such files from others but their names."""
    return False


def _is_core_ml(head: bytes) -> bool:
    """Its version, then a description that begins with an input."""
    begins = head[:1] == b"\x08" and b"\x01" <= head[1:2] <= b"\x10" and head[2:3] == b"\x12"
    return begins and _behind_length(head, 3)[:1] == b"\x0a"


def _is_openvino(head: bytes) -> bool:
    return b"<net " in head and b"<layers>" in head


def _is_safetensors(head: bytes) -> bool:
    """A length of eight bytes, then as much JSON."""
    return head[8:9] == b"{" and head[6:8] == b"\0\0" and b'"data_offsets"' in head


def _is_of(package: str, model: object) -> bool:
    """Whether an object is of a class of a package, or of one made from such."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(model).__mro__)


def _known(
    name: str, suffixes: str, sniff: Callable[[bytes], bool], instead: str,
    package: str = "", folder_with: str = "", function: str = "",
) -> Format:
    return Format(
        name, tuple(suffixes.split()), sniff, takes=partial(_is_of, package or "\0"),
        folder_with=folder_with, functions={function: ""} if function else {},
        instead=f"such models cannot be imported yet, but ONNX can: {instead}",
    )


_KERAS = 'keras.models.load_model(...).export("model.onnx", format="onnx") writes one'

KNOWN_FORMATS = (
    _known(
        "TensorFlow", ".pb", _is_tensorflow, package="tensorflow", function="from_tensorflow",
        folder_with="saved_model.pb",
        instead="python -m tf2onnx.convert --saved-model FOLDER --output model.onnx writes one, "
        "--graphdef MODEL of a frozen graph",
    ),
    _known("Keras", ".keras", _is_keras, _KERAS, package="keras", function="from_keras"),
    _known("Keras HDF5", ".h5 .hdf5", _begins_with(HDF5), _KERAS),
    _known(
        "PaddlePaddle", ".pdmodel", _never, "paddle2onnx --model_dir FOLDER --model_filename MODEL "
        "--params_filename WEIGHTS --save_file model.onnx writes one",
    ),
    _known(
        "Core ML", ".mlmodel .mlpackage", _is_core_ml,
        "export the model from the framework that it was made in",
    ),
    _known(
        "OpenVINO", ".xml", _is_openvino,
        "take the ONNX file that it was made of, or export the model once more",
    ),
    _known(
        "safetensors", ".safetensors", _is_safetensors,
        "the file holds weights and no graph; the framework of its model exports both",
    ),
    _known(
        "GGUF", ".gguf", _begins_with(b"GGUF"),
        "the file holds weights and no graph; the framework of its model exports both",
    ),
)

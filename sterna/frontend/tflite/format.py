"""The format TensorFlow Lite: a flatbuffer with the identifier TFL3."""

from sterna.frontend.format import Format


def _sniff(head: bytes) -> bool:
    return head[4:8] == b"TFL3"


def _takes(model: object) -> bool:
    """The object of the package tflite, or of the schema that comes with LiteRT."""
    kind = type(model)
    package = kind.__module__.partition(".")[0]
    return kind.__name__ == "Model" and package in ("tflite", "ai_edge_litert")


FORMAT = Format(
    name="TensorFlow Lite",
    suffixes=(".tflite", ".lite"),
    sniff=_sniff,
    load="sterna.frontend.tflite.importer:load",
    takes=_takes,
    functions={"from_tflite": "sterna.frontend.tflite.importer:from_tflite"},
    in_one_file=lambda path: True,
)

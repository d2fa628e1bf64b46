"""The format ONNX: a ModelProto in the encoding of protocol buffers."""

from sterna.frontend.format import Format

_VARINT, _BYTES = 0, 2

# The fields of a ModelProto and how each is encoded; those that hold text.
_FIELDS = {
    1: _VARINT, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _VARINT, 6: _BYTES, 7: _BYTES, 8: _BYTES,
    14: _BYTES, 20: _BYTES, 25: _BYTES, 26: _BYTES,
}
_TEXT = (2, 3, 4)


def _sniff(head: bytes) -> bool:
    """Whether bytes are fields of a ModelProto, as far as they go."""
    at = 0
    while at < len(head):
        tag, at = _varint(head, at)
        number, encoding = tag >> 3, tag & 7
        if _FIELDS.get(number) != encoding:
            return False
        value, at = _varint(head, at)
        if encoding == _BYTES:
            if number in _TEXT and not _is_text(head[at : at + value]):
                return False
            at += value
    return bool(head)


def _varint(head: bytes, at: int) -> tuple[int, int]:
    """A number and the place behind it; what is cut off counts as zeros."""
    value = shift = 0
    while at < len(head) and shift < 64:
        value |= (head[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if head[at - 1] < 0x80:
            break
    return value, at


def _is_text(data: bytes) -> bool:
    return all(byte >= 32 for byte in data)


def _takes(model: object) -> bool:
    described = getattr(type(model), "DESCRIPTOR", None)
    return getattr(described, "full_name", "") == "onnx.ModelProto"


FORMAT = Format(
    name="ONNX",
    suffixes=(".onnx",),
    sniff=_sniff,
    load="sterna.frontend.onnx.importer:load",
    takes=_takes,
    trace="sterna.frontend.onnx.open_model:OnnxTrace",
    functions={"from_onnx": "sterna.frontend.onnx.importer:from_onnx"},
    in_one_file="sterna.frontend.onnx.model:lies_in_one_file",
)

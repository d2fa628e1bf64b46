"""What objects for 32-bit ARM say of how they pass numbers.

Libraries and programs say it in their header, objects only in the section .ARM.attributes: a byte
"A", then per vendor a length, the vendor's name, and per scope a tag, a length and pairs of a tag
and a value, where a value is a number or a text.
"""

from sterna.support.file_view import BrokenFileError, FileView, Order

_SECTION_TYPE = 0x70000003
_MOST_BYTES = 1 << 16
_WHOLE_FILE = 1
_VFP_ARGUMENTS = 28
_COMPATIBILITY = 32


def arm_float_abi(view: FileView, order: Order) -> str:
    """hard or soft; empty if the file does not say."""
    table, entry = view.number(32, 4, order), view.number(46, 2, order)
    count = view.number(48, 2, order)
    if not table or entry != 40:
        return ""
    for index in range(count):
        at = table + index * entry
        if view.number(at + 4, 4, order) == _SECTION_TYPE:
            begin, size = view.number(at + 16, 4, order), view.number(at + 20, 4, order)
            return _float_abi(view.part(begin, size).head(_MOST_BYTES), order)
    return ""


def _float_abi(section: bytes, order: Order) -> str:
    at = 1
    while at + 4 < len(section) and section[:1] == b"A":
        length = int.from_bytes(section[at : at + 4], order)
        vendor = section[at + 4 : at + length]
        if length < 5:
            raise BrokenFileError("its ARM attributes are broken")
        name, _, scopes = vendor.partition(b"\0")
        if name == b"aeabi":
            return _of_vendor(scopes, order)
        at += length
    return ""


def _of_vendor(scopes: bytes, order: Order) -> str:
    at = 0
    while at + 5 <= len(scopes):
        length = int.from_bytes(scopes[at + 1 : at + 5], order)
        if length < 5:
            raise BrokenFileError("its ARM attributes are broken")
        if scopes[at] == _WHOLE_FILE:
            # A file without the tag passes numbers in the usual registers.
            return "hard" if _numbers(scopes[at + 5 : at + length]).get(_VFP_ARGUMENTS) else "soft"
        at += length
    return ""


def _numbers(pairs: bytes) -> dict[int, int]:
    """The tags whose values are numbers."""
    found: dict[int, int] = {}
    at = 0
    while at < len(pairs):
        tag, at = _leb(pairs, at)
        if tag == _COMPATIBILITY:
            _, at = _leb(pairs, at)
        if tag in (4, 5, _COMPATIBILITY) or (tag > 32 and tag % 2):
            end = pairs.find(b"\0", at)
            at = len(pairs) if end < 0 else end + 1
        else:
            found[tag], at = _leb(pairs, at)
    return found


def _leb(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, and the place behind it."""
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            break
    return value, at

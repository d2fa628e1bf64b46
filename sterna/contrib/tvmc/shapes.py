"""Shapes of inputs on the classic command line."""

import argparse
import re

_ONE = re.compile(r"\s*([^\[\]]+?)\s*:\s*\[([^\[\]]*)\]\s*,?")


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """input:[1,3,224,224] other:[1]"""
    found: dict[str, tuple[int, ...]] = {}
    place = 0
    while place < len(text.rstrip()):
        match = _ONE.match(text, place)
        try:
            assert match is not None
            found[match[1].strip("'\"")] = tuple(int(part) for part in match[2].split(",") if part)
        except (AssertionError, ValueError):
            raise argparse.ArgumentTypeError(
                f"{text[place:].strip()!r} is no shape such as 'x:[1,3,224,224]'"
            ) from None
        place = match.end()
    return found

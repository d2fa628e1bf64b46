"""Where in the user's program a step was recorded, for messages."""

import re

_FRAME = re.compile(r'File "([^"\n]{1,400})", line (\d+)')
# Frames of PyTorch's own modules say nothing about the user's model.
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")


def line_of(trace: str) -> str:
    """The innermost line of a stack that is not PyTorch's own: model.py:12; empty if none is."""
    frames = [
        (path, line) for path, line in _FRAME.findall(trace[-20_000:]) if not _LIBRARY.search(path)
    ]
    return "{}:{}".format(*frames[-1]) if frames else ""


def called(name: str, trace: str) -> str:
    """A step in a message: its name, and the line of the user's model."""
    line = line_of(trace)
    return f"{name} at {line}" if line else name

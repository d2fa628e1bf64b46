"""Changes of bytes: what transmission, disks and ill will do to a file or a message."""

import copy
import json
import math
import random
from collections.abc import Sequence
from typing import Any

INTERESTING = (
    0, 1, -1, 2, 7, 8, 31, 32, 33, 64, 255, 256, 4096, 1 << 16, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63),
)


def mutate(data: bytes, rng: random.Random, most: Sequence[int] = (1, 1, 2, 4, 16)) -> bytes:
    """A few bytes changed, left out, repeated or put in, or the end cut off."""
    made = bytearray(data)
    for _ in range(rng.choice(most)):
        if not made:
            break
        _mutate_once(made, rng, rng.randrange(len(made)))
    return bytes(made)


def mutate_head(data: bytes, rng: random.Random, size: int = 512) -> bytes:
    """The same near the beginning, where files say what they are."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(min(size, len(made)))
        width = rng.choice((1, 2, 4, 8))
        number = rng.choice(INTERESTING) % (1 << 8 * width)
        made[place : place + width] = number.to_bytes(width, "little")
    return bytes(made)


def _mutate_once(made: bytearray, rng: random.Random, place: int) -> None:
    length = rng.choice((1, 1, 2, 8, 64))
    kind = rng.randrange(6)
    if kind == 0:
        made[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        made[place : place + length] = rng.randbytes(length)
    elif kind == 2:
        del made[place : place + length]
    elif kind == 3:
        made[place:place] = made[place : place + length]
    elif kind == 4:
        number = rng.choice(INTERESTING) % (1 << 64)
        made[place : place + 8] = number.to_bytes(8, "little")
    else:
        del made[place:]


JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 7, 1 << 31, 1 << 40, 1 << 64, 10**400, 1.5, math.inf, math.nan, "", "x",
    "llvm", "float32", "\0", [], {}, [[]], [1], ["TENSOR"], ["TENSOR", 5, "x"], {"a": 1},
)


def mutate_json(text: str, rng: random.Random) -> str:
    """JSON of which a value or two are others, are gone, or stand under another name."""
    tree = [json.loads(text)]
    for _ in range(rng.choice((1, 1, 2))):
        places = [place for place in _places(tree) if place[0] is not tree or rng.random() < 0.1]
        if not places:
            continue
        home, key = rng.choice(places)
        kind = rng.randrange(4)
        if kind == 0 and home is not tree:
            del home[key]
        elif kind == 1 and isinstance(home, dict):
            home[rng.choice(["x", "", *home])] = home.pop(key)
        elif kind == 1:
            home.append(home[key])
        else:
            home[key] = copy.deepcopy(rng.choice(JUNK))  # a later change is not of the list above
    if rng.random() < 0.01:
        return "[" * 100_000
    return json.dumps(tree[0])


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every list and dict in it, with each of its keys."""
    found: list[tuple[Any, Any]] = []
    stack = [tree]
    while stack:
        home = stack.pop()
        keys = range(len(home)) if isinstance(home, list) else list(home)
        found += [(home, key) for key in keys]
        stack += [home[key] for key in keys if isinstance(home[key], list | dict)]
    return found

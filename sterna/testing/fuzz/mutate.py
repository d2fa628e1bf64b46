"""Changes of bytes: what transmission, disks and ill will do to a file or a message."""

import random
from collections.abc import Sequence

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

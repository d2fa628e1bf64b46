"""Ed25519 signatures (RFC 8032), in whole numbers of Python.

A signature takes a few milliseconds, and there is one per file. Python's numbers take times that
depend on their values: who can measure the moment of signing closely may learn of the key, so sign
on a machine of your own. Checking works with what is public alone.
"""

import hashlib

KEY_SIZE = 32
SIGNATURE_SIZE = 64

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)

# Extended coordinates (X, Y, Z, T): the point (X / Z, Y / Z), and T = XY / Z.
_Point = tuple[int, int, int, int]
_NEUTRAL: _Point = (0, 1, 1, 0)


def public_key(secret: bytes) -> bytes:
    """The public key of a secret one."""
    scalar, _ = _expand(secret)
    return _pack(_times(scalar, _BASE))


def sign(secret: bytes, message: bytes) -> bytes:
    """The signature of a message; the same key and message have the same one."""
    scalar, prefix = _expand(secret)
    public = _pack(_times(scalar, _BASE))
    nonce = _hash(prefix, message) % _ORDER
    point = _pack(_times(nonce, _BASE))
    answer = (nonce + _hash(point, public, message) * scalar) % _ORDER
    return point + answer.to_bytes(32, "little")


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key signed a message."""
    if len(public) != KEY_SIZE or len(signature) != SIGNATURE_SIZE:
        return False
    key, point = _unpack(public), _unpack(signature[:32])
    answer = int.from_bytes(signature[32:], "little")
    if key is None or point is None or answer >= _ORDER:
        return False
    challenge = _hash(signature[:32], public, message) % _ORDER
    return _pack(_times(answer, _BASE)) == _pack(_add(point, _times(challenge, key)))


def _expand(secret: bytes) -> tuple[int, bytes]:
    if len(secret) != KEY_SIZE:
        raise ValueError(f"a secret key has {KEY_SIZE} bytes, not {len(secret)}")
    digest = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | 1 << 254
    return scalar, digest[32:]


def _hash(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little")


def _add(one: _Point, two: _Point) -> _Point:
    a = (one[1] - one[0]) * (two[1] - two[0]) % _P
    b = (one[1] + one[0]) * (two[1] + two[0]) % _P
    c = 2 * one[3] * two[3] * _D % _P
    d = 2 * one[2] * two[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(factor: int, point: _Point) -> _Point:
    result = _NEUTRAL
    while factor:
        if factor & 1:
            result = _add(result, point)
        point = _add(point, point)
        factor >>= 1
    return result


def _x_of(y: int, is_odd: int) -> int | None:
    """The coordinate that belongs to another one on the curve, if there is one."""
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if x * x % _P != square:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if y >= _P or x * x % _P != square or (x == 0 and is_odd):
        return None
    return x if x % 2 == is_odd else _P - x


def _pack(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _unpack(packed: bytes) -> _Point | None:
    number = int.from_bytes(packed, "little")
    y = number & ((1 << 255) - 1)
    x = _x_of(y, number >> 255)
    return None if x is None else (x, y, 1, x * y % _P)


def _base_point() -> _Point:
    point = _unpack((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))
    assert point is not None
    return point


_BASE = _base_point()

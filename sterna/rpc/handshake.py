"""The handshake: both sides prove that they know the secret, and say what they want and allow.

Each side is a generator that does no input or output itself, so that it serves blocking streams and
asyncio alike: it yields bytes to send, or how many bytes to receive, or the client's Hello, for
which it is sent the Verdict.
"""

import hashlib
import hmac
import math
import secrets
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass

from sterna.rpc.errors import RPCError, RPCProtocolError
from sterna.rpc.frames import MOST_HEAD
from sterna.rpc.streams import Stream

MAGIC = b"STRN"
VERSION = 1

SESSION, TRACKER, PROXY = 1, 2, 3  # services

ACCEPTED, OTHER_VERSION, SECRET_NEEDED, WRONG_PROOF, WRONG_KEY, BUSY, NO_SUCH_SERVICE = range(7)

HAS_SECRET = PROXIED = 1  # flags, of hellos and of the verdict

NONCE = PROOF = 32
MOST_KEY = 255
MOST_TIMEOUT_MS = (1 << 32) - 1

CLIENT_LABEL = b"sterna rpc client 1\0"
SERVER_LABEL = b"sterna rpc server 1\0"

_client_hello = struct.Struct("<4sHBB32sIIH")
_server_hello = struct.Struct("<4sHBB32s")
_verdict = struct.Struct("<BBIIQH")


class ServerBusy(RPCError):
    """The server has as many sessions as it takes; later it may have fewer."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What a client wants."""

    service: int = SESSION
    key: str = ""
    timeout_ms: int = 0
    most_head: int = MOST_HEAD


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a server answers."""

    status: int = ACCEPTED
    is_proxied: bool = False
    timeout_ms: int = 0
    most_head: int = MOST_HEAD
    most_bytes: int = 0
    name: str = ""

    def lasts(self, hello: Hello) -> float:
        """Seconds that a session lasts: the shorter of what was asked and granted; 0 for ever.

        A server may shorten what its client asked for, and never lengthen it.
        """
        return min((ms for ms in (hello.timeout_ms, self.timeout_ms) if ms), default=0) / 1000


def to_milliseconds(session_timeout: float) -> int:
    """A session_timeout as a hello carries it; no time but 0 becomes 0, which is no limit."""
    if not 0 <= session_timeout <= MOST_TIMEOUT_MS / 1000:
        raise ValueError(
            f"session_timeout={session_timeout:g} is not from 0, which is no limit, to "
            f"{MOST_TIMEOUT_MS // 1000} seconds"
        )
    return math.ceil(session_timeout * 1000)


ClientSide = Generator[bytes | int, bytes, Verdict]
ServerSide = Generator[bytes | int | Hello, bytes | Verdict, Hello]


def _prove(secret: bytes | None, *parts: bytes) -> bytes:
    return bytes(PROOF) if secret is None else hmac.digest(secret, b"".join(parts), hashlib.sha256)


def client_side(hello: Hello, secret: bytes | None) -> ClientSide:
    """What a client does; a PermissionError says that one of both does not know the secret."""
    key = hello.key.encode()
    if len(key) > MOST_KEY:
        raise ValueError(f"the key '{hello.key[:20]}...' has more than {MOST_KEY} bytes")
    flags = 0 if secret is None else HAS_SECRET
    first = _client_hello.pack(
        MAGIC, VERSION, hello.service, flags, secrets.token_bytes(NONCE), hello.timeout_ms,
        hello.most_head, len(key),
    ) + key
    yield first
    second = yield _server_hello.size
    magic, version, status, flags, _ = _server_hello.unpack(second)
    if magic != MAGIC:
        raise RPCProtocolError("what answers there is no Sterna server")
    if version != VERSION or status == OTHER_VERSION:
        raise RPCError(f"the server speaks version {version} of the protocol, not {VERSION}")
    _check_status(status)
    if secret is not None and not flags & HAS_SECRET:
        raise PermissionError(
            "the server was started without a secret, so nothing proves that it is yours; start it "
            "with the same STERNA_RPC_SECRET, or unset it here"
        )
    proof = _prove(secret, CLIENT_LABEL, first, second)
    yield proof
    head = yield _verdict.size
    status, flags, timeout_ms, most_head, most_bytes, length = _verdict.unpack(head)
    if length > MOST_KEY:
        raise RPCProtocolError(f"the server's name has {length} bytes")
    name = (yield length) if length else b""
    theirs = yield PROOF
    _check_status(status)
    if not hmac.compare_digest(
        theirs, _prove(secret, SERVER_LABEL, first, second, proof, head, name)
    ):
        raise PermissionError("what answers there does not know the secret: it is not your server")
    text = name.decode(errors="replace")
    return Verdict(status, bool(flags & PROXIED), timeout_ms, most_head, most_bytes, text)


def _check_status(status: int) -> None:
    if status == SECRET_NEEDED:
        raise PermissionError("the server wants a secret; set STERNA_RPC_SECRET to the one it has")
    if status == WRONG_PROOF:
        raise PermissionError(
            "the server refused this client: the secret is wrong; set STERNA_RPC_SECRET to the one "
            "that the server has"
        )
    if status == WRONG_KEY:
        raise RPCError(
            "the server has another key, or serves clients of its tracker only (connect_tracker)"
        )
    if status == BUSY:
        raise ServerBusy("the server is busy: it has as many sessions as it takes")
    if status == NO_SUCH_SERVICE:
        raise RPCError("the server does not offer this: is it a server, a tracker or a proxy?")
    if status != ACCEPTED:
        raise RPCError(f"the server refused this client with the status {status}")


class Refused(Exception):
    """A client was refused; the text is for the server's log."""


def server_side(secret: bytes | None, services: frozenset[int]) -> ServerSide:
    """What a server does."""
    head = yield _client_hello.size
    assert isinstance(head, bytes)
    magic, version, service, flags, _, timeout_ms, most_head, length = _client_hello.unpack(head)
    if magic != MAGIC or length > MOST_KEY:
        raise Refused("what came is no hello of a Sterna client")
    key = (yield length) if length else b""
    assert isinstance(key, bytes)
    status = ACCEPTED
    if version != VERSION:
        status = OTHER_VERSION
    elif secret is not None and not flags & HAS_SECRET:
        status = SECRET_NEEDED
    own_flags = 0 if secret is None else HAS_SECRET
    second = _server_hello.pack(MAGIC, VERSION, status, own_flags, secrets.token_bytes(NONCE))
    yield second
    if status == OTHER_VERSION:
        raise Refused(f"a client speaks version {version} of the protocol")
    if status == SECRET_NEEDED:
        raise Refused("a client has no secret")
    proof = yield PROOF
    assert isinstance(proof, bytes)
    first = head + key
    if not hmac.compare_digest(proof, _prove(secret, CLIENT_LABEL, first, second)):
        yield _refusal(WRONG_PROOF)
        raise Refused("a client does not know the secret")
    if service not in services:
        yield _refusal(NO_SUCH_SERVICE)
        raise Refused(f"a client asked for the service {service}")
    try:
        hello = Hello(service, key.decode(), timeout_ms, most_head)
    except UnicodeDecodeError:
        raise Refused("a client's key is no text") from None
    verdict = yield hello
    assert isinstance(verdict, Verdict)
    if verdict.status != ACCEPTED:
        yield _refusal(verdict.status)
        raise Refused(f"a client with the key '{hello.key}' got the status {verdict.status}")
    name = verdict.name.encode()[:MOST_KEY]
    said = _verdict.pack(
        ACCEPTED, PROXIED if verdict.is_proxied else 0, verdict.timeout_ms, verdict.most_head,
        verdict.most_bytes, len(name),
    ) + name
    yield said + _prove(secret, SERVER_LABEL, first, second, proof, said)
    return hello


def _refusal(status: int) -> bytes:
    return _verdict.pack(status, 0, 0, 0, 0, 0) + bytes(PROOF)


def run_client_side(stream: Stream, hello: Hello, secret: bytes | None) -> Verdict:
    """Do a client's side over a stream."""
    steps = client_side(hello, secret)
    answer = b""
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, int):
                answer = stream.receive(wanted)
                wanted = steps.send(answer)
            else:
                stream.send(wanted)
                wanted = next(steps)
    except StopIteration as done:
        verdict: Verdict = done.value
        return verdict


def run_server_side(
    stream: Stream,
    secret: bytes | None,
    services: frozenset[int],
    decide: Callable[[Hello], Verdict],
) -> Hello:
    """Do a server's side over a stream; a Refused says why a client did not get in."""
    steps = server_side(secret, services)
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, int):
                wanted = steps.send(stream.receive(wanted))
            elif isinstance(wanted, Hello):
                wanted = steps.send(decide(wanted))
            else:
                stream.send(wanted)
                wanted = next(steps)
    except StopIteration as done:
        hello: Hello = done.value
        return hello

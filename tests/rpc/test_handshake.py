"""The handshake: who knows the secret gets in, and nobody else."""

from collections.abc import Generator
from typing import Any

import pytest

from sterna.rpc import handshake
from sterna.rpc.errors import RPCError, RPCProtocolError
from sterna.rpc.handshake import (
    BUSY,
    SESSION,
    TRACKER,
    WRONG_KEY,
    Hello,
    Refused,
    ServerBusy,
    Verdict,
    client_side,
    server_side,
)

SESSIONS = frozenset({SESSION})


class Line:
    """One side of a handshake, driven by hand."""

    def __init__(self, steps: Generator[Any, Any, Any], verdict: Verdict | None = None) -> None:
        self._steps, self._verdict = steps, verdict or Verdict(name="board")
        self.inbox = b""
        self.result: Any = None
        self.is_done = False
        self._wanted = next(steps)

    def run(self) -> bytes:
        """Go on as far as what came allows; what it sends."""
        sent = b""
        try:
            while not self.is_done:
                if isinstance(self._wanted, int):
                    if len(self.inbox) < self._wanted:
                        break
                    taken, self.inbox = self.inbox[: self._wanted], self.inbox[self._wanted :]
                    self._wanted = self._steps.send(taken)
                elif isinstance(self._wanted, Hello):
                    self._wanted = self._steps.send(self._verdict)
                else:
                    sent += self._wanted
                    self._wanted = next(self._steps)
        except StopIteration as done:
            self.result, self.is_done = done.value, True
        return sent


def meet(
    client_secret: bytes | None,
    server_secret: bytes | None,
    hello: Hello | None = None,
    verdict: Verdict | None = None,
) -> tuple[Verdict, Hello, list[bytes]]:
    """Both sides' results, and the four messages."""
    client = Line(client_side(hello or Hello(), client_secret))
    server = Line(server_side(server_secret, SESSIONS), verdict)
    said = []
    for source, target in ((client, server), (server, client)) * 2:
        said.append(source.run())
        target.inbox += said[-1]
    client.run()
    assert client.is_done and server.is_done
    return client.result, server.result, said


def test_both_know_the_secret() -> None:
    wanted = Hello(SESSION, "rpi4", 5000, 1234)
    answer = Verdict(0, False, 4000, 99, 1 << 40, "rpi4")
    verdict, hello, said = meet(b"secret", b"secret", wanted, answer)
    assert verdict == answer and hello == wanted
    assert b"secret" not in b"".join(said)


def test_both_have_none() -> None:
    verdict, _, _ = meet(None, None)
    assert verdict.name == "board"


def test_nonces_are_fresh_and_proofs_differ() -> None:
    _, _, one = meet(b"s", b"s")
    _, _, other = meet(b"s", b"s")
    assert one[2] != other[2] and one[2] not in one[3]  # the client's proof, the server's


def drive_client(secret: bytes | None, answers: list[bytes]) -> Verdict:
    """A client that gets these bytes, whatever it says."""
    client = Line(client_side(Hello(), secret))
    for answer in answers:
        client.run()
        client.inbox += answer
    client.run()
    assert client.is_done
    verdict: Verdict = client.result
    return verdict


def server_hello(status: int = 0, flags: int = 1, version: int = 1) -> bytes:
    return handshake._server_hello.pack(b"STRN", version, status, flags, bytes(32))


@pytest.mark.parametrize(
    ("secret", "answers", "error", "text"),
    [
        (None, [server_hello(2)], PermissionError, "wants a secret; set STERNA_RPC_SECRET"),
        (b"s", [server_hello(0, 0)], PermissionError, "started without a secret"),
        (b"s", [server_hello(), handshake._refusal(3)], PermissionError, "the secret is wrong"),
        (b"s", [server_hello(), handshake._refusal(WRONG_KEY)], RPCError, "another key"),
        (b"s", [server_hello(), handshake._refusal(BUSY)], ServerBusy, "busy"),
        (b"s", [server_hello(), handshake._refusal(0)], PermissionError, "is not your server"),
        (b"s", [server_hello(1, 1, 7)], RPCError, "speaks version 7"),
        (b"s", [b"HTTP/1.1 400 Bad Request" + bytes(40)], RPCProtocolError, "no Sterna server"),
    ],
)
def test_a_client_believes_only_its_server(
    secret: bytes | None, answers: list[bytes], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        drive_client(secret, answers)


def drive_server(secret: bytes | None, *messages: bytes) -> list[bytes]:
    """What a server says to bytes, until it refuses."""
    server = Line(server_side(secret, SESSIONS))
    said = []
    for message in messages:
        server.inbox += message
        said.append(server.run())
    return said


def client_hello(flags: int = 1, version: int = 1) -> bytes:
    return handshake._client_hello.pack(b"STRN", version, SESSION, flags, bytes(32), 0, 1000, 0)


def test_a_client_without_the_secret_is_refused() -> None:
    with pytest.raises(Refused, match="has no secret"):
        drive_server(b"s", client_hello(flags=0))
    with pytest.raises(Refused, match="does not know the secret"):
        drive_server(b"s", client_hello(), bytes(32))
    with pytest.raises(Refused, match="version 9"):
        drive_server(b"s", client_hello(version=9))
    with pytest.raises(Refused, match="no hello"):
        drive_server(b"s", b"GET / HTTP/1.1\r\n" + bytes(60))


def test_a_proof_is_good_once_and_for_one_direction() -> None:
    client = Line(client_side(Hello(), b"s"))
    hello = client.run()
    first = Line(server_side(b"s", SESSIONS))
    first.inbox += hello
    client.inbox += first.run()
    proof = client.run()
    with pytest.raises(Refused, match="does not know"):  # replayed at another connection
        drive_server(b"s", hello, proof)
    first.inbox += proof
    verdict = first.run()
    with pytest.raises(Refused, match="does not know"):  # the server's proof, sent back to it
        drive_server(b"s", hello, verdict[-32:])


def test_a_service_that_is_not_offered_is_refused() -> None:
    client = Line(client_side(Hello(TRACKER), None))
    server = Line(server_side(None, SESSIONS))
    server.inbox += client.run()
    client.inbox += server.run()
    server.inbox += client.run()
    with pytest.raises(Refused, match="asked for the service 2"):
        server.run()


def test_long_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 255 bytes"):
        Line(client_side(Hello(key="x" * 256), None))

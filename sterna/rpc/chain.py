"""Sessions behind a session: a server that connects to another one and passes bytes on."""

import select
from collections.abc import Callable
from typing import Any

from sterna.rpc.client import connect
from sterna.rpc.files import SessionFolder
from sterna.rpc.programs import start_program
from sterna.rpc.streams import BufferedStream, PipeStream, StreamEnded


def make_constructor(
    stream: BufferedStream, folder: SessionFolder
) -> Callable[[list[Any]], Callable[[], None]]:
    """What makes the session that INIT asks for, and gives what passes a client's bytes on."""

    def construct(args: list[Any]) -> Callable[[], None]:
        kind, *rest = args or [None]
        if kind == "rpc.Connect":
            return _connect(stream, *rest)
        if kind == "rpc.PopenSession":
            return _start(stream, folder, *rest)
        raise ValueError(
            f"a session is constructed by 'rpc.Connect' or 'rpc.PopenSession', not by {kind!r}"
        )

    return construct


def _connect(
    stream: BufferedStream, host: str, port: int, key: str = "", logs: bool = False, *further: Any
) -> Callable[[], None]:
    session = connect(host, port, key, 0, further, bool(logs))

    def run() -> None:
        there = session._peer.stream
        assert isinstance(there, BufferedStream)
        relay(stream, there)

    return run


def _start(
    stream: BufferedStream, folder: SessionFolder, binary: bytes | str, *args: str
) -> Callable[[], None]:
    file = folder.locate(binary) if isinstance(binary, str) else binary
    program = start_program(file, args, str(folder.path))

    def run() -> None:
        assert program.process.stdout and program.process.stdin
        relay(stream, PipeStream(program.process.stdout, program.process.stdin))
        program.end()

    return run


def relay(one: BufferedStream, other: BufferedStream) -> None:
    """Pass bytes both ways until one side ends."""
    try:
        while True:
            waiting = [each for each in (one, other) if each.has_read_ahead()]
            if not waiting:
                waiting = select.select([one, other], [], [])[0]
            for each in waiting:
                (other if each is one else one).send(each.receive_some())
    except StreamEnded:
        pass
    finally:
        one.close()
        other.close()

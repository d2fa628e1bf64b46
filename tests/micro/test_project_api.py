"""The protocol between compiler and project: replies, refusals, and what is no message."""

import contextlib
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.micro.project_api import client as api
from sterna.micro.project_api.server import (
    ErrorCode,
    IoTimeoutError,
    ProjectAPIHandler,
    ProjectAPIServer,
    ProjectOption,
    ServerInfo,
    TransportClosedError,
    TransportTimeouts,
    check_options,
)

OPTION = ProjectOption("board", "the board", choices=["a", "b"], required=["build"])


class Handler(ProjectAPIHandler):
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.is_open = False

    def server_info_query(self, tvm_version: str) -> ServerInfo:
        return ServerInfo("test", True, "", [OPTION])

    def generate_project(
        self, model_library_format_path: Path, standalone_crt_dir: Path | None,
        project_dir: Path, options: dict[str, Any],
    ) -> None:
        self.asked.append((model_library_format_path, standalone_crt_dir, project_dir, options))

    def build(self, options: dict[str, Any]) -> None:
        raise ValueError("the board is on fire")

    def flash(self, options: dict[str, Any]) -> None:
        self.asked.append(options)

    def open_transport(self, options: dict[str, Any]) -> TransportTimeouts:
        self.is_open = True
        return TransportTimeouts(1, 2, 3)

    def close_transport(self) -> None:
        self.is_open = False

    def read_transport(self, n: int, timeout_sec: float | None) -> bytes:
        if not self.is_open:
            raise TransportClosedError
        if timeout_sec == 0:
            raise IoTimeoutError
        return bytes(range(256))[:n]

    def write_transport(self, data: bytes, timeout_sec: float | None) -> None:
        self.asked.append(data)


def connect(serve: Callable[[Any, Any], None]) -> api.ProjectAPIClient:
    """A client whose server is a function of two files, in a thread."""
    (their_read, our_write), (our_read, their_write) = os.pipe(), os.pipe()

    def run() -> None:
        requests, replies = os.fdopen(their_read, "rb"), os.fdopen(their_write, "wb")
        with contextlib.suppress(BrokenPipeError), requests, replies:  # the client may go first
            serve(requests, replies)

    threading.Thread(target=run, daemon=True).start()
    return api.ProjectAPIClient(os.fdopen(our_read, "rb", 0), os.fdopen(our_write, "wb", 0))


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
def client(handler: Handler) -> Iterator[api.ProjectAPIClient]:
    with connect(lambda i, o: ProjectAPIServer(i, o, handler).serve_forever()) as made:
        yield made


def test_every_method(client: api.ProjectAPIClient, handler: Handler) -> None:
    info = client.server_info_query()
    assert info.platform_name == "test" and info.is_template and info.protocol_version == 1
    assert info.project_options[0].choices == ["a", "b"]
    client.generate_project("model.tar", None, "made", {"board": "a"})
    assert handler.asked.pop() == (Path("model.tar"), None, Path("made"), {"board": "a"})
    client.flash({"board": "b"})
    assert handler.asked.pop() == {"board": "b"}
    with pytest.raises(TransportClosedError):
        client.read_transport(3, 1.0)
    assert client.open_transport().session_established_timeout_sec == 3
    assert client.read_transport(256, None) == bytes(range(256))
    with pytest.raises(IoTimeoutError):
        client.read_transport(3, 0)
    client.write_transport(bytes(range(256)) * 400, 1.0)
    assert handler.asked.pop() == bytes(range(256)) * 400
    client.close_transport()
    assert not handler.is_open
    with pytest.raises(api.RPCError, match="build: the board is on fire") as failed:
        client.build()
    assert failed.value.kind == "ValueError" and failed.value.code == ErrorCode.SERVER_ERROR
    client.shutdown()
    with pytest.raises(api.ConnectionShutdownError, match="was shut down"):
        client.build()


REPLY = b'{"jsonrpc": "2.0", "id": %d, "result": %s}\n'


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"terns\n", api.MalformedReplyError),
        (b"\xff\xfe\n", api.MalformedReplyError),
        (b"[" * 100_000 + b"\n", api.MalformedReplyError),
        (b"[]\n", api.MalformedReplyError),
        (b'{"jsonrpc": "1.0", "id": 1, "result": 1}\n', api.MalformedReplyError),
        (b'{"jsonrpc": "2.0", "id": 1}\n', api.MalformedReplyError),
        (b'{"jsonrpc": "2.0", "id": 1, "result": 1, "error": {}}\n', api.MalformedReplyError),
        (b'{"jsonrpc": "2.0", "id": 1, "error": 7}\n', api.MalformedReplyError),
        (REPLY % (2, b"{}"), api.MismatchedIdError),
        (REPLY % (1, b'{"protocol_version": 9}'), api.UnsupportedProtocolVersionError),
        (REPLY % (1, b"7"), api.UnsupportedProtocolVersionError),
        (REPLY % (1, b'{"protocol_version": 1}'), api.MalformedReplyError),
        (b"", api.ConnectionShutdownError),
        (b'{"jsonrpc"', api.ConnectionShutdownError),
    ],
)
def test_replies_that_are_none(reply: bytes, error: type[Exception]) -> None:
    def serve(requests: Any, replies: Any) -> None:
        requests.readline()
        replies.write(reply)

    with connect(serve) as client, pytest.raises(error):
        client.server_info_query()


def test_a_server_that_sleeps_or_sends_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "SHORT", 0.2)
    monkeypatch.setattr(api, "LONGEST_LINE", 1 << 16)
    with connect(lambda requests, replies: time.sleep(1)) as client:
        with pytest.raises(api.ReplyTimeoutError, match="does not answer"):
            client.server_info_query()
        assert client.is_shutdown
    with connect(lambda _, replies: replies.write(b"x" * 200_000)) as client, pytest.raises(
        api.MalformedReplyError, match="longer than"
    ):
        client.server_info_query()


def answer(*lines: bytes) -> list[Any]:
    """What a server says to these requests."""
    replies = io.BytesIO()
    server = ProjectAPIServer(io.BytesIO(b"".join(lines)), replies, Handler())
    server.serve_forever()
    return [json.loads(line) for line in replies.getvalue().splitlines()]


WORDS = ["jsonrpc", "id", "method", "params", "options", "n", "data"]


def request(method: str, params: Any, **changes: Any) -> bytes:
    whole = {"jsonrpc": "2.0", "id": 5, "method": method, "params": params, **changes}
    return json.dumps(whole).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"terns\n", ErrorCode.PARSE_ERROR),
        (b"[" * 100_000 + b"\n", ErrorCode.PARSE_ERROR),
        (b"[]\n", ErrorCode.INVALID_REQUEST),
        (request("build", {}, jsonrpc="1"), ErrorCode.INVALID_REQUEST),
        (request("build", []), ErrorCode.INVALID_REQUEST),
        (request("__init__", {}), ErrorCode.METHOD_NOT_FOUND),
        (request("build", {}), ErrorCode.INVALID_PARAMS),
        (request("build", {"options": 3}), ErrorCode.INVALID_PARAMS),
        (request("build", {"options": {}, "more": 1}), ErrorCode.INVALID_PARAMS),
        (request("read_transport", {"n": 0, "timeout_sec": 1}), ErrorCode.INVALID_PARAMS),
        (request("read_transport", {"n": 1, "timeout_sec": "1"}), ErrorCode.INVALID_PARAMS),
        (request("write_transport", {"data": " ", "timeout_sec": 1}), ErrorCode.INVALID_PARAMS),
        (request("write_transport", {"data": 1, "timeout_sec": 1}), ErrorCode.INVALID_PARAMS),
        (request("build", {"options": {}}), ErrorCode.SERVER_ERROR),
    ],
)
def test_requests_that_are_refused(line: bytes, code: ErrorCode) -> None:
    first, second = answer(line, request("close_transport", {}))
    assert first["error"]["code"] == code and "result" not in first
    assert second == {"jsonrpc": "2.0", "id": 5, "result": None}


@settings(max_examples=150)
@given(st.lists(st.binary(max_size=60)))
def test_any_bytes_are_answered_or_end_the_server(lines: list[bytes]) -> None:
    sent = b"\n".join(lines)
    assert len(answer(sent)) == sent.count(b"\n")


@settings(max_examples=150)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda more: st.lists(more, max_size=3) | st.dictionaries(st.sampled_from(WORDS), more),
))
def test_any_json_is_answered(value: Any) -> None:
    (reply,) = answer(json.dumps(value).encode() + b"\n")
    assert reply["jsonrpc"] == "2.0" and ("error" in reply) != ("result" in reply)


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_any_bytes_for_a_reply_are_an_error(content: bytes) -> None:
    def serve(requests: Any, replies: Any) -> None:
        requests.readline()
        replies.write(content + b"\n")

    with connect(serve) as client, pytest.raises(api.ProjectAPIErrorBase):
        client.server_info_query()


def test_options_of_all_methods_go_together() -> None:
    more = ProjectOption("port", "where", optional=["flash"], default="p")
    assert check_options([OPTION, more], "flash", {"board": "a"}) == {"board": "a", "port": "p"}
    with pytest.raises(ValueError, match="build needs the option board, one of a, b: the board"):
        check_options([OPTION, more], "build", {})
    with pytest.raises(ValueError, match="takes a int, not True"):
        check_options([ProjectOption("n", "", "int", optional=["build"])], "build", {"n": True})
    with pytest.raises(ValueError, match="a type is one of"):
        ProjectOption("n", "", "float", optional=["build"])
    with pytest.raises(ValueError, match="it is for some of"):
        ProjectOption("n", "", optional=["run"])


STRANGER = """
import os, sys, time
from pathlib import Path
Path("ran").write_text(str(os.getpid()))
{}
"""


def test_a_servers_process_ends_with_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "GRACE", 0.2)
    (tmp_path / api.SERVER).write_text(STRANGER.format("time.sleep(600)"))
    client = api.instantiate_from_dir(tmp_path)
    while not (tmp_path / "ran").is_file() or not (tmp_path / "ran").read_text():
        time.sleep(0.01)
    client.shutdown()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "ran").read_text()), 0)


def test_a_server_that_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / api.SERVER).write_text(STRANGER.format("sys.exit(3)"))
    with api.instantiate_from_dir(tmp_path) as client, pytest.raises(
        api.ConnectionShutdownError, match="ended with status 3"
    ):
        client.server_info_query()


def test_a_launcher_comes_first(tmp_path: Path) -> None:
    (tmp_path / api.LAUNCHER).write_text(f'exec "{sys.executable}" other.py "$@"\n')
    (tmp_path / "other.py").write_text(STRANGER.format("sys.exit(4)"))
    with api.instantiate_from_dir(tmp_path) as client, pytest.raises(
        api.ConnectionShutdownError, match="status 4"
    ):
        client.server_info_query()

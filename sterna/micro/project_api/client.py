"""The compiler's side: asks a project's server, which runs as a process of its own."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from sterna.micro.project_api.server import (
    LONGEST_LINE,
    PROTOCOL_VERSION,
    ErrorCode,
    IoTimeoutError,
    ServerInfo,
    TransportClosedError,
    TransportTimeouts,
    decode_bytes,
    encode_bytes,
)
from sterna.version import __version__

SERVER = "microtvm_api_server.py"
LAUNCHER = "launch_microtvm_api_server.sh"
"""A project may have this instead, to set things up before its server runs."""

SHORT, LONG = 60.0, 1800.0
"""Seconds to wait for a reply: for those that come at once, and for compilers and programmers."""
GRACE = 5.0


class ProjectAPIErrorBase(Exception):
    """Talking with a project's server failed."""


class ConnectionShutdownError(ProjectAPIErrorBase):
    """The server is gone, or this client was shut down."""


class MalformedReplyError(ProjectAPIErrorBase):
    """The server sent what is no reply."""


class MismatchedIdError(ProjectAPIErrorBase):
    """The server answered another request than the one that was sent."""


class ReplyTimeoutError(ProjectAPIErrorBase, TimeoutError):
    """The server did not answer in time."""


class ProjectAPIServerNotFoundError(ProjectAPIErrorBase, FileNotFoundError):
    """A folder has no project's server in it."""


ServerNotFoundError = ProjectAPIServerNotFoundError


class UnsupportedProtocolVersionError(ProjectAPIErrorBase):
    """The server speaks another version of the protocol."""


class RPCError(ProjectAPIErrorBase):
    """The server did not do what it was asked for; the text is its reason."""

    def __init__(self, request: str, error: Mapping[str, Any]) -> None:
        self.code = error.get("code")
        self.message = str(error.get("message"))
        data = error.get("data")
        self.kind = str(data.get("type", "")) if isinstance(data, Mapping) else ""
        """The name of the exception that it was there."""
        super().__init__(f"{request}: {self.message}")


class ProjectAPIClient:
    """A project's server. Every call waits for its reply, and no longer than a time limit."""

    def __init__(
        self, read_file: IO[bytes], write_file: IO[bytes],
        process: "subprocess.Popen[bytes] | None" = None,
    ) -> None:
        self._read_file = read_file
        self._write_file = write_file
        self._process = process
        self._buffer = bytearray()
        self._next_id = 1
        self._is_shutdown = False
        for file in (read_file, write_file):
            os.set_blocking(file.fileno(), False)

    def __enter__(self) -> "ProjectAPIClient":
        return self

    def __exit__(self, *reason: object) -> None:
        self.shutdown()

    def __del__(self) -> None:
        self.shutdown()

    @property
    def is_shutdown(self) -> bool:
        """Whether no more requests can be made."""
        return self._is_shutdown

    def shutdown(self) -> None:
        """Let the server go; it ends with all that it started."""
        if self._is_shutdown:
            return
        self._is_shutdown = True
        self._write_file.close()
        self._read_file.close()
        if self._process is not None:
            _end(self._process)

    # ---- methods ----

    def server_info_query(self, tvm_version: str = __version__) -> ServerInfo:
        """What the project is; its version of the protocol must be ours."""
        data = self._request("server_info_query", {"tvm_version": tvm_version}, SHORT)
        version = data.get("protocol_version") if isinstance(data, dict) else None
        if version != PROTOCOL_VERSION:
            raise UnsupportedProtocolVersionError(
                f"the project's server speaks version {version} of the protocol; this client "
                f"speaks {PROTOCOL_VERSION}"
            )
        try:
            return ServerInfo.from_json(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedReplyError(f"server_info_query: {error!r} in {data!r:.200}") from None

    def generate_project(
        self, model_library_format_path: str | os.PathLike[str],
        standalone_crt_dir: str | os.PathLike[str] | None,
        project_dir: str | os.PathLike[str], options: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a project from an archive of a network."""
        crt = None if standalone_crt_dir is None else os.fspath(standalone_crt_dir)
        self._request(
            "generate_project",
            {"model_library_format_path": os.fspath(model_library_format_path),
             "standalone_crt_dir": crt,
             "project_dir": os.fspath(project_dir), "options": dict(options or {})},
            LONG,
        )

    def build(self, options: Mapping[str, Any] | None = None) -> None:
        """Compile the project."""
        self._request("build", {"options": dict(options or {})}, LONG)

    def flash(self, options: Mapping[str, Any] | None = None) -> None:
        """Bring the program to the board."""
        self._request("flash", {"options": dict(options or {})}, LONG)

    def open_transport(self, options: Mapping[str, Any] | None = None) -> TransportTimeouts:
        """Reach the running program."""
        data = self._request("open_transport", {"options": dict(options or {})}, SHORT)
        try:
            return TransportTimeouts(**{k: float(v or 0) for k, v in data["timeouts"].items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedReplyError(f"open_transport: {error!r} in {data!r:.200}") from None

    def close_transport(self) -> None:
        """Leave it."""
        self._request("close_transport", {}, SHORT)

    def read_transport(self, n: int, timeout_sec: float | None) -> bytes:
        """One to n bytes; IoTimeoutError, or TransportClosedError at the program's end."""
        data = self._request("read_transport", {"n": n, "timeout_sec": timeout_sec},
                             _with_slack(timeout_sec))
        if not isinstance(data, dict) or not isinstance(data.get("data"), str):
            raise MalformedReplyError(f"read_transport: {data!r:.200}")
        return decode_bytes(data["data"])

    def write_transport(self, data: bytes, timeout_sec: float | None) -> None:
        """Send bytes, all of them."""
        params = {"data": encode_bytes(data), "timeout_sec": timeout_sec}
        self._request("write_transport", params, _with_slack(timeout_sec))

    # ---- messages ----

    def _request(self, method: str, params: dict[str, Any], seconds: float) -> Any:
        if self._is_shutdown:
            raise ConnectionShutdownError(f"{method}: this client was shut down")
        number = self._next_id
        self._next_id += 1
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        deadline = time.monotonic() + seconds
        self._send(json.dumps(request).encode() + b"\n", method, deadline)
        reply = _parse_reply(self._receive(method, deadline), method)
        if reply.get("error") is not None:
            raise _error_of(method, reply)
        if reply.get("id") != number:
            raise MismatchedIdError(f"{method}: request {number}, reply {reply.get('id')!r:.40}")
        return reply.get("result")

    def _send(self, message: bytes, method: str, deadline: float) -> None:
        left = memoryview(message)
        while left:
            self._wait(method, deadline, for_writing=True)
            try:
                left = left[os.write(self._write_file.fileno(), left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._gone(method) from error

    def _receive(self, method: str, deadline: float) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > LONGEST_LINE:
                raise MalformedReplyError(f"{method}: the reply is longer than {LONGEST_LINE}")
            self._wait(method, deadline, for_writing=False)
            try:
                part = os.read(self._read_file.fileno(), 1 << 16)
            except BlockingIOError:
                continue
            if not part:
                raise self._gone(method)
            self._buffer += part
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return line

    def _wait(self, method: str, deadline: float, for_writing: bool) -> None:
        file = [self._write_file if for_writing else self._read_file]
        left = max(0.0, deadline - time.monotonic())
        ready = select.select([], file, [], left)[1] if for_writing else (
            select.select(file, [], [], left)[0]
        )
        if not ready:
            self.shutdown()
            raise ReplyTimeoutError(f"{method}: the project's server does not answer; it was ended")

    def _gone(self, method: str) -> ConnectionShutdownError:
        self.shutdown()
        status = self._process.returncode if self._process is not None else None
        ended = "" if status is None else f" with status {status}"
        return ConnectionShutdownError(f"{method}: the project's server ended{ended}")


def _with_slack(timeout_sec: float | None) -> float:
    return LONG if timeout_sec is None else timeout_sec + SHORT


def _parse_reply(line: bytes, method: str) -> dict[str, Any]:
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedReplyError(f"{method}: {error}: {line[:200]!r}") from None
    if not isinstance(reply, dict) or reply.get("jsonrpc") != "2.0":
        raise MalformedReplyError(f"{method}: {line[:200]!r} is no reply of JSON-RPC 2.0")
    if ("result" in reply) == (reply.get("error") is not None):
        raise MalformedReplyError(f"{method}: a reply has a result or an error: {line[:200]!r}")
    return reply


def _error_of(method: str, reply: dict[str, Any]) -> Exception:
    error = reply["error"]
    if not isinstance(error, dict) or not isinstance(error.get("code"), int):
        return MalformedReplyError(f"{method}: {error!r:.200} is no error of JSON-RPC")
    if error["code"] == ErrorCode.IO_TIMEOUT:
        return IoTimeoutError(str(error.get("message")))
    if error["code"] == ErrorCode.TRANSPORT_CLOSED:
        return TransportClosedError(str(error.get("message")))
    return RPCError(method, error)


# ---- processes ----


def instantiate_from_dir(
    project_dir: str | os.PathLike[str], debug: bool = False
) -> ProjectAPIClient:
    """Start the server that lies in a folder: this runs the folder's own code.

    debug: what it writes to the standard error is shown, rather than thrown away.
    """
    folder = Path(project_dir).resolve()
    launcher, server = folder / LAUNCHER, folder / SERVER
    if launcher.is_file():
        command = ["sh", str(launcher)]
    elif server.is_file():
        command = [sys.executable, str(server)]
    else:
        raise ProjectAPIServerNotFoundError(
            f"'{folder}' is no project: there is no {SERVER} in it"
        )
    (their_read, our_write), (our_read, their_write) = os.pipe(), os.pipe()
    try:
        process = subprocess.Popen(
            [*command, "--read-fd", str(their_read), "--write-fd", str(their_write)],
            pass_fds=(their_read, their_write), cwd=folder, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=None if debug else subprocess.DEVNULL,
            stderr=None if debug else subprocess.DEVNULL,
        )
    except OSError:
        os.close(our_write)
        os.close(our_read)
        raise
    finally:
        os.close(their_read)
        os.close(their_write)
    return ProjectAPIClient(
        os.fdopen(our_read, "rb", buffering=0), os.fdopen(our_write, "wb", buffering=0), process
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a server, which ends when its requests do; end it and what it started if not."""
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

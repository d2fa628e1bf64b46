"""The project's side: a program that generates, builds, flashes and reaches a board on request.

A project's microtvm_api_server.py makes a ProjectAPIHandler and gives it to main. Requests and
replies are JSON-RPC 2.0, one per line, on two file descriptors; bytes travel as base85.

    {"jsonrpc": "2.0", "id": 1, "method": "build", "params": {"options": {}}}
    {"jsonrpc": "2.0", "id": 1, "result": null}
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "...", "data": {...}}}
"""

import abc
import argparse
import base64
import enum
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

PROTOCOL_VERSION = 1
LONGEST_LINE = 1 << 26
"""Bytes of a request or reply; what is longer is no message."""

GENERATE, BUILD, FLASH, OPEN = "generate_project", "build", "flash", "open_transport"
METHODS = (GENERATE, BUILD, FLASH, OPEN)
"""The methods that take options."""
TYPES: dict[str, type[Any]] = {"str": str, "bool": bool, "int": int, "list": list}


class ErrorCode(enum.IntEnum):
    """What goes wrong, as numbers of JSON-RPC."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    SERVER_ERROR = -32000
    IO_TIMEOUT = -32001
    TRANSPORT_CLOSED = -32002


class JSONRPCError(Exception):
    """A request failed; its reply says this."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_json(self) -> dict[str, Any]:
        """The error object of a reply."""
        return {"code": int(self.code), "message": self.message, "data": self.data}


class ServerError(JSONRPCError):
    """A project could not do what it was asked for."""

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(ErrorCode.SERVER_ERROR, message, data)

    @classmethod
    def of(cls, error: Exception) -> "ServerError":
        """An exception, with the place that it comes from."""
        lines = traceback.format_exception(error)
        return cls(str(error) or type(error).__name__,
                   {"type": type(error).__name__, "traceback": "".join(lines)})


class IoTimeoutError(JSONRPCError):
    """Nothing could be read or written in time."""

    def __init__(self, message: str = "nothing came in time") -> None:
        super().__init__(ErrorCode.IO_TIMEOUT, message)


class TransportClosedError(JSONRPCError):
    """The other end is gone, or was never opened."""

    def __init__(self, message: str = "the transport is not open") -> None:
        super().__init__(ErrorCode.TRANSPORT_CLOSED, message)


@dataclass(frozen=True, slots=True)
class ProjectOption:
    """A setting of a project; required and optional list the methods that take it."""

    name: str
    help: str = ""
    type: str = "str"
    default: Any = None
    choices: Sequence[str] | None = None
    required: Sequence[str] = ()
    optional: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ValueError(f"option {self.name}: a type is one of {', '.join(TYPES)}")
        unknown = [m for m in (*self.required, *self.optional) if m not in METHODS]
        if unknown or not (self.required or self.optional):
            raise ValueError(f"option {self.name}: it is for some of {', '.join(METHODS)}")

    def checked(self, value: Any) -> Any:
        """A value of this option, after it was held against type and choices."""
        kind = TYPES[self.type]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"option {self.name} takes a {self.type}, not {value!r}")
        if self.choices is not None and value not in self.choices:
            raise ValueError(
                f"option {self.name} is {value!r}; it is one of {', '.join(self.choices)}"
            )
        return value


def check_options(
    known: Sequence[ProjectOption], method: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    """What a method is to use: the options that were given, and defaults of the others.

    Options of other methods are let through, so that one set of options serves all.
    """
    named = {option.name: option for option in known}
    for name in given:
        if name not in named:
            raise ValueError(f"there is no option '{name}'; there are {', '.join(sorted(named))}")
    used: dict[str, Any] = {}
    for option in known:
        if given.get(option.name) is not None:
            used[option.name] = option.checked(given[option.name])
        elif method in option.required:
            among = f", one of {', '.join(option.choices)}" if option.choices else ""
            raise ValueError(f"{method} needs the option {option.name}{among}: {option.help}")
        else:
            used[option.name] = option.default
    return used


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a project or template says about itself."""

    platform_name: str
    is_template: bool
    model_library_format_path: str
    """Where the network lies in a generated project; empty for a template."""
    project_options: list[ProjectOption]
    protocol_version: int = PROTOCOL_VERSION

    def to_json(self) -> dict[str, Any]:
        """As it is sent."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ServerInfo":
        """From what a server sent."""
        options = [
            ProjectOption(
                str(o["name"]), str(o.get("help", "")), str(o.get("type", "str")),
                o.get("default"), o.get("choices"), tuple(o.get("required") or ()),
                tuple(o.get("optional") or ()),
            )
            for o in data["project_options"]
        ]
        return cls(
            str(data["platform_name"]), bool(data["is_template"]),
            str(data["model_library_format_path"]), options, int(data["protocol_version"]),
        )


@dataclass(frozen=True, slots=True)
class TransportTimeouts:
    """How long who talks over a transport should wait, in seconds; 0 is for ever."""

    session_start_retry_timeout_sec: float = 0.5
    session_start_timeout_sec: float = 10.0
    session_established_timeout_sec: float = 30.0


class ProjectAPIHandler(abc.ABC):
    """What a project can do. Exceptions reach the client as errors with their texts."""

    @abc.abstractmethod
    def server_info_query(self, tvm_version: str) -> ServerInfo:
        """What this project or template is."""

    @abc.abstractmethod
    def generate_project(
        self, model_library_format_path: Path, standalone_crt_dir: Path | None,
        project_dir: Path, options: dict[str, Any],
    ) -> None:
        """Make a project from an archive of a network; templates do this."""

    @abc.abstractmethod
    def build(self, options: dict[str, Any]) -> None:
        """Compile the project."""

    @abc.abstractmethod
    def flash(self, options: dict[str, Any]) -> None:
        """Bring the program to the board."""

    @abc.abstractmethod
    def open_transport(self, options: dict[str, Any]) -> TransportTimeouts:
        """Reach the running program; its bytes are read and written until close_transport."""

    @abc.abstractmethod
    def close_transport(self) -> None:
        """Leave it; nothing happens if it is not open."""

    @abc.abstractmethod
    def read_transport(self, n: int, timeout_sec: float | None) -> bytes:
        """At least one and at most n bytes; IoTimeoutError or TransportClosedError if none come."""

    @abc.abstractmethod
    def write_transport(self, data: bytes, timeout_sec: float | None) -> None:
        """Send all the bytes; IoTimeoutError or TransportClosedError if they do not go."""


class ProjectAPIServer:
    """Answers requests that come on a file, until it ends."""

    def __init__(self, requests: IO[bytes], replies: IO[bytes], handler: ProjectAPIHandler) -> None:
        self._requests = requests
        self._replies = replies
        self._handler = handler

    def serve_forever(self) -> None:
        """Answer until the client is gone."""
        try:
            while self.serve_one_request():
                pass
        finally:
            self._handler.close_transport()

    def serve_one_request(self) -> bool:
        """Answer one request; whether another one may come."""
        line = self._requests.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            return False  # the client is gone, or sends what has no end
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": None}
        try:
            request = _parse(line)
            reply["id"] = request.get("id")
            reply["result"] = self._answer(request)
        except JSONRPCError as error:
            reply["error"] = error.to_json()
        except Exception as error:  # whatever it is: the client is told, and may go on
            reply["error"] = ServerError.of(error).to_json()
        self._replies.write(json.dumps(reply).encode() + b"\n")
        self._replies.flush()
        return True

    def _answer(self, request: dict[str, Any]) -> Any:
        method = _METHODS.get(request["method"])
        if method is None:
            raise JSONRPCError(
                ErrorCode.METHOD_NOT_FOUND, f"there is no method '{request['method']}'"
            )
        names = list(inspect.signature(method).parameters)[1:]
        params = request["params"]
        if sorted(params) != sorted(names):
            raise JSONRPCError(
                ErrorCode.INVALID_PARAMS,
                f"{request['method']} takes {', '.join(names) or 'nothing'}; given were "
                f"{', '.join(sorted(params)) or 'none'}",
            )
        return method(self._handler, **params)


def _parse(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise JSONRPCError(ErrorCode.PARSE_ERROR, f"the request is no JSON: {error}") from None
    if (
        not isinstance(request, dict)
        or request.get("jsonrpc") != "2.0"
        or not isinstance(request.get("method"), str)
        or not isinstance(request.get("params"), dict)
        or not isinstance(request.get("id"), int)
    ):
        raise JSONRPCError(
            ErrorCode.INVALID_REQUEST, "a request has jsonrpc 2.0, id, method and params"
        )
    return request


# ---- methods, as requests name them, from and to what JSON can say ----


def encode_bytes(data: bytes) -> str:
    """Bytes as text."""
    return base64.b85encode(data).decode("ascii")


def decode_bytes(text: Any) -> bytes:
    """Text as the bytes that it stands for."""
    if not isinstance(text, str):
        raise JSONRPCError(ErrorCode.INVALID_PARAMS, "data is a text in base85")
    try:
        return base64.b85decode(text)
    except ValueError as error:
        raise JSONRPCError(ErrorCode.INVALID_PARAMS, f"data is no base85: {error}") from None


def _server_info_query(handler: ProjectAPIHandler, tvm_version: Any) -> dict[str, Any]:
    return handler.server_info_query(str(tvm_version)).to_json()


def _generate_project(
    handler: ProjectAPIHandler, model_library_format_path: Any, standalone_crt_dir: Any,
    project_dir: Any, options: Any,
) -> None:
    crt = Path(str(standalone_crt_dir)) if standalone_crt_dir else None
    handler.generate_project(
        Path(str(model_library_format_path)), crt, Path(str(project_dir)), _object(options)
    )


def _build(handler: ProjectAPIHandler, options: Any) -> None:
    handler.build(_object(options))


def _flash(handler: ProjectAPIHandler, options: Any) -> None:
    handler.flash(_object(options))


def _open_transport(handler: ProjectAPIHandler, options: Any) -> dict[str, Any]:
    return {"timeouts": asdict(handler.open_transport(_object(options)))}


def _close_transport(handler: ProjectAPIHandler) -> None:
    handler.close_transport()


def _read_transport(handler: ProjectAPIHandler, n: Any, timeout_sec: Any) -> dict[str, str]:
    if not isinstance(n, int) or n < 1:
        raise JSONRPCError(ErrorCode.INVALID_PARAMS, f"n is a number of bytes, not {n!r}")
    return {"data": encode_bytes(handler.read_transport(n, _seconds(timeout_sec)))}


def _write_transport(handler: ProjectAPIHandler, data: Any, timeout_sec: Any) -> None:
    handler.write_transport(decode_bytes(data), _seconds(timeout_sec))


def _object(options: Any) -> dict[str, Any]:
    if not isinstance(options, dict):
        raise JSONRPCError(ErrorCode.INVALID_PARAMS, "options are an object of names and values")
    return options


def _seconds(value: Any) -> float | None:
    if value is not None and (not isinstance(value, int | float) or value < 0):
        raise JSONRPCError(ErrorCode.INVALID_PARAMS, f"timeout_sec is in seconds, not {value!r}")
    return value


_METHODS: dict[str, Callable[..., Any]] = {
    function.__name__[1:]: function
    for function in (
        _server_info_query, _generate_project, _build, _flash, _open_transport, _close_transport,
        _read_transport, _write_transport,
    )
}


def main(handler: ProjectAPIHandler, argv: Sequence[str] | None = None) -> None:
    """Serve a project on the descriptors that the command line names."""
    parser = argparse.ArgumentParser(description="Serves a firmware project to its client.")
    parser.add_argument("--read-fd", type=int, required=True, help="where requests come from")
    parser.add_argument("--write-fd", type=int, required=True, help="where replies go")
    args = parser.parse_args(sys.argv[1:] if argv is None else argv)
    with os.fdopen(args.read_fd, "rb") as requests, os.fdopen(args.write_fd, "wb") as replies:
        ProjectAPIServer(requests, replies, handler).serve_forever()


__all__ = [
    "ErrorCode", "IoTimeoutError", "JSONRPCError", "PROTOCOL_VERSION", "ProjectAPIHandler",
    "ProjectAPIServer", "ProjectOption", "ServerError", "ServerInfo", "TransportClosedError",
    "TransportTimeouts", "check_options", "main",
]

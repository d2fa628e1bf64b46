"""Asking a tracker for servers."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from sterna.rpc.addresses import open_stream
from sterna.rpc.client import RPCSession, connect, named
from sterna.rpc.errors import RPCError, RPCSessionTimeoutError
from sterna.rpc.handshake import TRACKER, Hello, run_client_side
from sterna.rpc.plain_peer import PlainPeer
from sterna.rpc.streams import SocketStream
from sterna.support.options import options
from sterna.support.table import lay_out

RETRY_S = 0.5
STARTS_WITHIN_S = 15.0

Result = TypeVar("Result")


class TrackerSession:
    """A connection to a tracker; it is made anew when it was lost."""

    def __init__(self, host: str, port: int, tls_ca: str | None = None) -> None:
        self._host, self._port, self._tls_ca = host, port, tls_ca
        self._peer: PlainPeer | None = None
        self._connect()

    def _connect(self) -> PlainPeer:
        where = f"the tracker at {self._host}:{self._port}"
        stream = self._open(time.monotonic() + STARTS_WITHIN_S)
        try:
            run_client_side(stream, Hello(TRACKER), options.rpc_secret)
        except BaseException as error:
            stream.close()
            raise named(error, where) from None
        stream.set_deadline(None)
        self._peer = PlainPeer(stream)
        return self._peer

    def _open(self, end: float) -> SocketStream:
        """A connection; a tracker that was just started, or is started again, gets its time."""
        while True:
            try:
                return open_stream(self._host, self._port, self._tls_ca)
            except RPCError:
                if time.monotonic() >= end:
                    raise
                time.sleep(RETRY_S)

    def _call(self, name: str, *args: Any) -> Any:
        """Ask the tracker; once more over a new connection, if the last one was lost."""
        peer = self._peer
        if peer is not None and peer.ended is None:
            try:
                return peer.call(name, *args)
            except RPCError:
                if peer.ended is None:
                    raise
        return self._connect().call(name, *args)

    def close(self) -> None:
        """End the connection."""
        if self._peer is not None:
            self._peer.end("it was closed here")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---- servers ----

    def request(
        self,
        key: str | None = None,
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 5,
        session_constructor_args: Sequence[Any] | None = None,
    ) -> RPCSession:
        """A session on the next free server with a key, else with TVM_TRACKER_KEY.

        Waits for its turn: higher priorities first, equal ones in their order. A server that cannot
        be reached is tried again, max_retry times, each time with what the tracker offers then.
        """
        wanted = key or options.tracker_key
        if wanted is None:
            raise ValueError("request a server by its key, or set TVM_TRACKER_KEY")
        last: Exception | None = None
        for _ in range(max(1, max_retry)):
            try:
                host, port, match_key = self._call("tracker.request", wanted, "", priority)
                return connect(
                    host, port, match_key, session_timeout, session_constructor_args,
                    tls_ca=self._tls_ca,
                )
            except PermissionError:
                raise
            except RPCError as error:
                last = error
                time.sleep(RETRY_S)
        raise RPCError(
            f"no session on a server '{wanted}' after {max_retry} tries; the last one: {last}"
        )

    def request_and_run(
        self,
        key: str,
        func: Callable[[RPCSession], Result],
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 2,
    ) -> Result:
        """What a function gives for a session; it runs again on another one if that breaks."""
        last: Exception | None = None
        for _ in range(max(1, max_retry)):
            try:
                with self.request(key, priority, session_timeout) as session:
                    return func(session)
            except RPCSessionTimeoutError:
                raise
            except RPCError as error:
                last = error
        raise RPCError(f"'{key}' failed {max_retry} times; the last time: {last}")

    # ---- what there is ----

    def summary(self) -> dict[str, Any]:
        """Servers ("server_info") and queues by key ("queue_info")."""
        found: dict[str, Any] = json.loads(self._call("tracker.summary"))
        return found

    def text_summary(self) -> str:
        """The same as text."""
        found = self.summary()
        servers, queues = found["server_info"], found["queue_info"]
        server_columns = [
            ("server-address", ["{}:{}".format(*s["addr"]) for s in servers]),
            ("key", [s["key"] for s in servers]),
            ("state", [s["state"] for s in servers]),
            ("holder", [s["holder"] for s in servers]),
        ]
        queue_columns = [("key", list(queues))] + [
            (name, [str(queue[name]) for queue in queues.values()])
            for name in ("total", "free", "pending")
        ]
        return (
            f"Server List\n{lay_out(server_columns)}\n\nQueue Status\n{lay_out(queue_columns)}\n"
        )


def connect_tracker(
    url: str | None = None, port: int | None = None, *, tls_ca: str | None = None
) -> TrackerSession:
    """A connection to a tracker, else to that of TVM_TRACKER_HOST and TVM_TRACKER_PORT."""
    host, number = url or options.tracker_host, port or options.tracker_port
    if host is None or number is None:
        raise ValueError("name the tracker's host and port, or set TVM_TRACKER_HOST and _PORT")
    return TrackerSession(host, number, tls_ca)


def request_remote(
    device_key: str, host: str | None = None, port: int | None = None, priority: int = 1,
    timeout: float = 60,
) -> RPCSession:
    """A session on the next free server with a key; host and port are those of the tracker."""
    return connect_tracker(host, port).request(device_key, priority, timeout)

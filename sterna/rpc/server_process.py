"""Servers in processes of their own."""

import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from sterna.rpc.addresses import check_may_listen, check_may_wait, listen, split_address
from sterna.rpc.server import ServerLoop
from sterna.rpc.settings import Limits, ServerSettings
from sterna.support.options import options

ENDS_WITHIN_S = 10.0


class Server:
    """A server in a process of its own, which ends with this object or by terminate.

    It listens on this machine alone unless host says otherwise, which takes STERNA_RPC_SECRET.
    server_init_callback is called in the server's process, for example to register functions.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9091,
        port_end: int = 9199,
        is_proxy: bool = False,
        tracker_addr: tuple[str, int] | str | None = None,
        key: str = "",
        load_library: str | Sequence[str] | None = None,
        custom_addr: str | None = None,
        silent: bool = False,
        no_fork: bool = False,
        server_init_callback: Callable[[], Any] | None = None,
        reuse_addr: bool = True,
        timeout: float | None = None,
        *,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        tls_ca: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        """is_proxy: host and port are those of a proxy. timeout: seconds of the longest session."""
        limits = limits or Limits(session_s=timeout or 0)
        settings = ServerSettings(
            key, _address(tracker_addr), (host, port) if is_proxy else None, custom_addr,
            _libraries(load_library), silent, no_fork, tls_cert, tls_key, tls_ca, limits,
        )
        check_settings(settings)
        listener = None
        if not is_proxy:
            check_may_listen(host, options.rpc_secret)
            listener = listen(host, port, port_end, reuse_addr)
        self.host = host
        self.port = port if listener is None else int(listener.getsockname()[1])
        start = _start_fresh if server_init_callback is None else _start_copy
        self._stop = weakref.finalize(self, start(listener, settings, server_init_callback))
        if listener is not None:
            listener.close()

    def terminate(self) -> None:
        """End it with all of its sessions; twice does no harm."""
        self._stop()


def check_settings(settings: ServerSettings) -> None:
    """Refuse what does not go together."""
    if settings.tracker is not None and settings.proxy is not None:
        raise ValueError("a server behind a proxy is found by the proxy, not by a tracker")
    if settings.proxy is not None:
        check_may_wait(settings.proxy[0], options.rpc_secret)
    if settings.tracker is not None and not settings.key:
        raise ValueError("a server at a tracker needs a key that clients ask for: key='rpi4'")
    if settings.proxy is not None and settings.no_fork and settings.tls_ca:
        raise ValueError("no_fork cannot hand on a connection to a proxy over TLS")


def _address(given: tuple[str, int] | str | None) -> tuple[str, int] | None:
    return split_address(given) if isinstance(given, str) else given and (given[0], int(given[1]))


def _libraries(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return tuple(given.split(":") if isinstance(given, str) else given or ())


def _start_fresh(
    listener: socket.socket | None, settings: ServerSettings, callback: object
) -> Callable[[], None]:
    """A new interpreter; what ends it."""
    reads, writes = os.pipe()
    number = -1 if listener is None else listener.fileno()
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import main; main()", str(number), str(reads),
         settings.to_json()],
        pass_fds=[n for n in (number, reads) if n >= 0], stdin=subprocess.DEVNULL,
    )
    os.close(reads)

    def stop() -> None:
        os.close(writes)
        try:
            process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    return stop


def _start_copy(
    listener: socket.socket | None, settings: ServerSettings, callback: Callable[[], Any] | None
) -> Callable[[], None]:
    """A copy of this process, which first calls the callback; what ends it."""
    reads, writes = os.pipe()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(writes)
            assert callback is not None
            callback()
            ServerLoop(listener, settings).run(reads)
            status = 0
        except SystemExit:
            status = 0
        except BaseException as error:
            print(f"rpc: the server could not start: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    os.close(reads)
    starter = os.getpid()

    def stop() -> None:
        os.close(writes)
        if os.getpid() == starter:
            os.waitpid(process, 0)

    return stop


def main() -> None:
    """What _start_fresh starts."""
    listener, alive, settings = sys.argv[1:]
    sock = None if int(listener) < 0 else socket.socket(fileno=int(listener))
    ServerLoop(sock, ServerSettings.from_json(settings)).run(int(alive))


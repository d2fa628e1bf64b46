"""Remote execution: compile here, run and time there, and keep strangers out.

docs/rpc.md shows its use, docs/rpc_protocol.md what goes over the wire, docs/security.md what it
defends against. Names are loaded when they are first used: a client needs nothing of a server's.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sterna.support.classic import find_moved

if TYPE_CHECKING:
    from sterna.rpc.client import RPCSession, connect
    from sterna.rpc.errors import RPCError, RPCProtocolError, RPCSessionTimeoutError
    from sterna.rpc.proxy import Proxy
    from sterna.rpc.server_process import Server
    from sterna.rpc.sessions_here import LocalSession, PopenSession, SerialSession
    from sterna.rpc.settings import Limits
    from sterna.rpc.tracker import Tracker
    from sterna.rpc.tracker_client import TrackerSession, connect_tracker

_WHERE = {
    "Limits": "settings",
    "LocalSession": "sessions_here",
    "PopenSession": "sessions_here",
    "Proxy": "proxy",
    "RPCError": "errors",
    "RPCProtocolError": "errors",
    "RPCSession": "client",
    "RPCSessionTimeoutError": "errors",
    "SerialSession": "sessions_here",
    "Server": "server_process",
    "Tracker": "tracker",
    "TrackerSession": "tracker_client",
    "connect": "client",
    "connect_tracker": "tracker_client",
}

__all__ = [
    "Limits", "LocalSession", "PopenSession", "Proxy", "RPCError", "RPCProtocolError",
    "RPCSession", "RPCSessionTimeoutError", "SerialSession", "Server", "Tracker", "TrackerSession",
    "connect", "connect_tracker",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        return _module(name)
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def _module(name: str) -> Any:
    """A module of the package by its name, or what has moved."""
    if name in ("client", "proxy", "server", "tracker"):
        return importlib.import_module(f"{__name__}.{name}")
    return find_moved(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})

"""Remote execution: compile here, run and time there, and keep strangers out.

docs/rpc.md shows its use, docs/rpc_protocol.md what goes over the wire, docs/security.md what it
defends against.
"""

from sterna.rpc.client import LocalSession, PopenSession, RPCSession, SerialSession, connect
from sterna.rpc.errors import RPCError, RPCProtocolError, RPCSessionTimeoutError
from sterna.rpc.proxy import Proxy
from sterna.rpc.server_process import Server
from sterna.rpc.settings import Limits
from sterna.rpc.tracker import Tracker
from sterna.rpc.tracker_client import TrackerSession, connect_tracker
from sterna.support.classic import classic_names

__all__ = [
    "Limits", "LocalSession", "PopenSession", "Proxy", "RPCError", "RPCProtocolError",
    "RPCSession", "RPCSessionTimeoutError", "SerialSession", "Server", "Tracker", "TrackerSession",
    "connect", "connect_tracker",
]  # fmt: skip

__getattr__ = classic_names(__name__)

"""A server's line to a proxy: waits there for a client, whose connection it then is."""

import time

from sterna.rpc import frames, values
from sterna.rpc.addresses import open_stream
from sterna.rpc.errors import RPCError, RPCProtocolError
from sterna.rpc.handshake import PROXY, Hello, run_client_side
from sterna.rpc.plain_peer import PlainPeer
from sterna.rpc.settings import ServerSettings
from sterna.rpc.streams import SocketStream, StreamEnded
from sterna.support.options import options

ANSWER_S = 10.0


class ProxyLine:
    """A connection to a proxy on which no client has come yet."""

    def __init__(self, settings: ServerSettings) -> None:
        assert settings.proxy is not None
        self._stream = open_stream(*settings.proxy, settings.tls_ca, ANSWER_S)
        try:
            run_client_side(self._stream, Hello(PROXY, settings.key), options.rpc_secret)
        except BaseException:
            self._stream.close()
            raise
        self._codec = PlainPeer(self._stream)

    def fileno(self) -> int:
        """What to wait on."""
        return self._stream.fileno()

    def has_read_ahead(self) -> bool:
        """Whether something was said that waiting does not show."""
        return self._stream.has_read_ahead()

    def hear(self) -> SocketStream | None:
        """Answer the proxy; the connection if a client has come. An RPCError: it is lost."""
        while True:
            stream = self._hear_once()
            if stream is not None or not self.has_read_ahead():
                return stream

    def _hear_once(self) -> SocketStream | None:
        self._stream.set_deadline(time.monotonic() + ANSWER_S)
        try:
            kind, head, _ = frames.read(self._stream, frames.MOST_HEAD)
            called = values.decode_all(head, self._codec)
            if kind != frames.PING and (kind != frames.CALL or called != ["proxy.begin"]):
                raise RPCProtocolError(f"the proxy sent a frame of kind {kind}")
            self._stream.send(frames.pack(frames.RETURN, bytes([values.NONE])))
        except (StreamEnded, TimeoutError) as error:
            raise RPCError(str(error)) from None
        return self._stream if kind == frames.CALL else None

    def close(self) -> None:
        """Give it up."""
        self._stream.socket.close()

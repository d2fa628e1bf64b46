"""A tracker and a server of this process, for programs that measure by way of both."""

from types import TracebackType
from typing import Self

from sterna.rpc.server_process import Server
from sterna.rpc.tracker import Tracker


class LocalRPC:
    """Both, as long as a with block lasts.

    with LocalRPC() as rpc:
        config = RPCConfig(rpc.tracker_host, rpc.tracker_port, rpc.tracker_key)
    """

    def __init__(
        self, tracker_key: str = "key", silent: bool = False, no_fork: bool = False
    ) -> None:
        self.tracker_host, self.tracker_key = "127.0.0.1", tracker_key
        self._tracker = Tracker(self.tracker_host, port=0, silent=silent)
        self.tracker_port = self._tracker.port
        try:
            self._server = Server(
                self.tracker_host, port=0, key=tracker_key, silent=silent,
                tracker_addr=(self.tracker_host, self.tracker_port),
            )
        except BaseException:
            self._tracker.terminate()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.terminate()
        self._tracker.terminate()

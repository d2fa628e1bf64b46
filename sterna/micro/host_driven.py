"""Runs the network of a host_driven project from here, over its byte stream.

templates/common/src/host_driven.c, the other end, says what the messages are.
"""

import struct
import zlib
from typing import Any

import numpy as np

from sterna.micro.platforms.network import Network
from sterna.micro.transport import IoTimeoutError, Transport
from sterna.support.numpy_dtype import numpy_dtype

START, VERSION = 0xA5, 2
HEAD = struct.Struct("<BHI")
REASONS = {1: "a message was damaged", 2: "it does not know the command",
           3: "it has no such input or output", 4: "the size is not that of the input"}
LONGEST_SILENCE = 1 << 16
"""Bytes of something else that may come before a message."""
ATTEMPTS = 4
LARGEST_STATUS = 12
"""Bytes of the longest reply that is no output."""
QUIET_S = 0.1
"""A line on which nothing came for so long is quiet."""

Array = np.ndarray[Any, Any]


class BoardError(RuntimeError):
    """The program on the board refused, or its network failed."""


class DrivenNetwork:
    """A network on a board. The transport must be open, and the program running."""

    def __init__(self, transport: Transport, network: Network, seconds: float = 60.0) -> None:
        self.network = network
        self._transport = transport
        self._seconds = seconds
        version, inputs, outputs = self._ask("h", 0, b"")[:3]
        known = (VERSION, len(network.inputs), len(network.outputs))
        if (version, inputs, outputs) != known:
            raise BoardError(
                f"the board runs another program: it has {inputs} inputs and {outputs} outputs, "
                f"and speaks version {version}; expected were {known[1]}, {known[2]}, {known[0]}"
            )

    def __call__(self, **inputs: Any) -> list[Array]:
        """Set inputs by name, run, and give all outputs."""
        for name, value in inputs.items():
            self.set_input(name, value)
        self.run()
        return [self.get_output(place) for place in range(len(self.network.outputs))]

    def set_input(self, name: str, value: Any) -> None:
        """Send an input; it stays until it is set again."""
        names = [tensor.name for tensor in self.network.inputs]
        if name not in names:
            raise ValueError(f"the network has no input '{name}'; it has {', '.join(names)}")
        tensor = self.network.inputs[names.index(name)]
        array = np.ascontiguousarray(value)
        if array.dtype != numpy_dtype(tensor.dtype) or tuple(np.shape(value)) != tensor.shape:
            raise ValueError(
                f"input '{name}' takes {tensor.type}, not {array.dtype}{list(np.shape(value))}"
            )
        self._ask("w", names.index(name), array.tobytes())

    def run(self) -> None:
        """Run the network on the board."""
        (status,) = struct.unpack("<i", self._ask("r", 0, b""))
        if status != 0:
            raise BoardError(f"the network failed on the board: it returned {status}")

    def get_output(self, place: int) -> Array:
        """Fetch an output."""
        tensor = self.network.outputs[place]
        data = self._ask("g", place, b"")
        return np.frombuffer(data, numpy_dtype(tensor.dtype)).reshape(tensor.shape)

    def time(self, number: int) -> float:
        """Seconds per run, of so many, by the board's own clock."""
        if not 1 <= number < 1 << 32:
            raise ValueError(f"number={number} must be at least 1")
        status, nanoseconds = struct.unpack("<iQ", self._ask("t", 0, struct.pack("<I", number)))
        if status != 0:
            raise BoardError(f"the network failed on the board: it returned {status}")
        if nanoseconds == 0:
            raise BoardError("the board has no clock")
        return float(nanoseconds) * 1e-9 / number

    def quit(self) -> None:
        """End the program."""
        self._ask("q", 0, b"")

    def _ask(self, command: str, place: int, data: bytes) -> bytes:
        """The answer to a request. Asking again does no harm, so damage on the way is mended."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self._ask_once(command, place, data)
            except (BoardError, IoTimeoutError):
                self._resynchronise()
        return self._ask_once(command, place, data)

    def _resynchronise(self) -> None:
        """Let the board finish the message that it may be waiting for the rest of, and be quiet."""
        longest = max((tensor.size for tensor in self.network.inputs), default=0)
        self._transport.write(bytes(longest + HEAD.size + 4), self._seconds)
        try:
            while self._transport.read(1 << 12, QUIET_S):
                pass
        except IoTimeoutError:
            pass

    def _ask_once(self, command: str, place: int, data: bytes) -> bytes:
        body = HEAD.pack(ord(command), place, len(data)) + data
        message = bytes([START]) + body + struct.pack("<I", zlib.crc32(body))
        self._transport.write(message, self._seconds)
        return self._reply(command, place)

    def _reply(self, command: str, place: int) -> bytes:
        for _ in range(LONGEST_SILENCE):
            if self._read(1)[0] == START:
                break
        else:
            raise BoardError("the board sends something else than replies")
        head = self._read(HEAD.size)
        answered, at, size = HEAD.unpack(head)
        largest = max((tensor.size for tensor in self.network.outputs), default=0)
        if size > max(largest, LARGEST_STATUS):
            raise BoardError(f"the board announces {size} bytes; its largest output has {largest}")
        data = self._read(size)
        (crc,) = struct.unpack("<I", self._read(4))
        if crc != zlib.crc32(head + data):
            raise BoardError("a reply of the board was damaged")
        if answered == ord("x"):
            raise BoardError(f"the board refused: {REASONS.get(data[0], 'reason ' + str(data[0]))}")
        if (answered, at) != (ord(command), place):
            raise BoardError(f"the board answered '{chr(answered)}' to '{command}'")
        return data

    def _read(self, size: int) -> bytes:
        return self._transport.read_exactly(size, self._seconds)

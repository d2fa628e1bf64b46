"""A reliable stream over a line that loses and changes bytes, as serial ones do."""

import os
import select
import struct
import termios
import time
import tty
import zlib
from collections.abc import Callable, Iterator

from sterna.rpc.streams import BufferedStream, StreamEnded

FLAG, ESCAPE, FLIP = 0x7E, 0x7D, 0x20
DATA, ACKNOWLEDGEMENT, RESET, RESET_ACKNOWLEDGEMENT = 1, 2, 3, 4

MOST_DATA = 1024
AGAIN_S = 0.2
MOST_TRIES = 50

_head = struct.Struct("<BBH")
_crc = struct.Struct("<I")
_MOST_ESCAPED = 2 * (_head.size + MOST_DATA + _crc.size)


def open_line(path: str, baud: int = 115200) -> int:
    """A serial device, opened so that bytes pass as they are."""
    file = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if os.isatty(file):
            tty.setraw(file)
            speed = getattr(termios, f"B{baud}", None)
            if speed is None:
                raise ValueError(f"'{path}' cannot run at {baud} baud")
            settings = termios.tcgetattr(file)
            settings[4] = settings[5] = speed
            termios.tcsetattr(file, termios.TCSANOW, settings)
    except BaseException:
        os.close(file)
        raise
    return file


def pack_packet(kind: int, sequence: int, data: bytes = b"") -> bytes:
    """A packet as it goes over the line."""
    body = _head.pack(kind, sequence, len(data)) + data
    body += _crc.pack(zlib.crc32(body))
    escaped = body.replace(b"\x7d", b"\x7d\x5d").replace(b"\x7e", b"\x7d\x5e")
    return b"\x7e" + escaped + b"\x7e"


def unpack_packet(escaped: bytes) -> tuple[int, int, bytes] | None:
    """Kind, sequence number and data of what stood between two flags; None if it is broken."""
    first, *others = escaped.split(bytes([ESCAPE]))
    if not all(others):
        return None  # an escape before nothing, or before another one
    body = first + b"".join(bytes([each[0] ^ FLIP]) + each[1:] for each in others)
    if len(body) < _head.size + _crc.size:
        return None
    content = body[: -_crc.size]
    (crc,) = _crc.unpack_from(body, len(content))
    kind, sequence, length = _head.unpack_from(content)
    if crc != zlib.crc32(content) or length != len(content) - _head.size or length > MOST_DATA:
        return None
    return kind, sequence, content[_head.size :]


class PacketReader:
    """Finds packets among bytes, whatever lies between them."""

    def __init__(self) -> None:
        self._open = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """The packets that end in these bytes."""
        *ended, rest = data.split(bytes([FLAG]))
        for piece in ended:
            self._open += piece
            packet = unpack_packet(bytes(self._open)) if self._open else None
            self._open.clear()
            if packet is not None:
                yield packet
        if len(self._open) + len(rest) <= _MOST_ESCAPED:
            self._open += rest
        else:
            self._open.clear()  # no packet is so long: what comes up to the next flag is noise


class SerialStream(BufferedStream):
    """A stream over a file that both sides read and write, like a terminal's."""

    def __init__(self, file: int, opens: bool) -> None:
        """opens: this side begins, and the other one forgets what was before."""
        super().__init__()
        self._file = file
        self._reader = PacketReader()
        self._received = bytearray()
        self._next_out = self._next_in = 0
        self._acknowledged = -1
        self._was_reset = self._is_closed = False
        self._is_open = not opens
        if opens:
            self._reset()

    def _reset(self) -> None:
        for _ in range(MOST_TRIES):
            self._write(pack_packet(RESET, 0))
            if self._wait(lambda: self._is_open):
                return
        raise StreamEnded("nothing answers at the other end of the line")

    def send(self, data: bytes, bulk: memoryview | None = None) -> None:
        """Send everything."""
        for part in (data, bulk):
            view = memoryview(part or b"")
            for at in range(0, len(view), MOST_DATA):
                self._send_packet(bytes(view[at : at + MOST_DATA]))

    def _send_packet(self, data: bytes) -> None:
        sequence = self._next_out
        packet = pack_packet(DATA, sequence, data)
        for _ in range(MOST_TRIES):
            self._check()
            self._check_deadline()
            self._write(packet)
            if self._wait(lambda: self._acknowledged == sequence or self._was_reset):
                self._check()
                self._next_out = (sequence + 1) % 256
                self._acknowledged = -1
                return
        raise StreamEnded("the other end of the line does not acknowledge what is sent")

    def _check(self) -> None:
        if self._is_closed:
            raise StreamEnded("the line is closed")
        if self._was_reset:
            raise StreamEnded("the other side has begun anew")

    def _read_some(self, view: memoryview) -> int:
        while not self._received:
            self._check()
            self._wait(lambda: bool(self._received) or self._was_reset)
            self._check_deadline()
        self._check_deadline()
        count = min(len(view), len(self._received))
        view[:count] = self._received[:count]
        del self._received[:count]
        return count

    def wait_for_bytes(self) -> None:
        """Wait, for as long as it takes, until the other side has said something."""
        while not self._received:
            self._check()
            self._wait(lambda: bool(self._received))

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """Take packets until a condition holds or it is time to send again."""
        end = time.monotonic() + AGAIN_S
        while not condition():
            left = end - time.monotonic()
            if left <= 0:
                return False
            ready, _, _ = select.select([self._file], [], [], left)
            if ready:
                for packet in self._reader.feed(self._read()):
                    self._take(*packet)
        return True

    def _take(self, kind: int, sequence: int, data: bytes) -> None:
        if self._was_reset:
            return  # what comes now is for who takes this line over
        if kind == DATA:
            if sequence == self._next_in:
                self._received += data
                self._next_in = (sequence + 1) % 256
            elif sequence != (self._next_in - 1) % 256:
                return
            self._write(pack_packet(ACKNOWLEDGEMENT, sequence))
        elif kind == ACKNOWLEDGEMENT:
            self._acknowledged = sequence
        elif kind == RESET:
            if self._next_in or self._next_out:
                self._was_reset = True
            else:
                self._write(pack_packet(RESET_ACKNOWLEDGEMENT, 0))
        elif kind == RESET_ACKNOWLEDGEMENT:
            self._is_open = True

    def _read(self) -> bytes:
        try:
            data = os.read(self._file, 1 << 16)
        except OSError as error:
            raise StreamEnded(f"the line is lost: {error}") from None
        if not data:
            raise StreamEnded("the line is closed at the other end")
        return data

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while len(view):
                view = view[os.write(self._file, view) :]
        except OSError as error:
            raise StreamEnded(f"the line is lost: {error}") from None

    def fileno(self) -> int:
        """What to wait on for bytes to read."""
        return self._file

    def close(self) -> None:
        """End it; twice does no harm."""
        self._is_closed = True

"""What a server is told when it is started."""

import json
import os
import resource
from dataclasses import asdict, dataclass
from typing import Self

from sterna.rpc.addresses import Certificate

HANDSHAKE_S = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What sessions may take; 0 is no limit."""

    sessions: int = 1
    """How many at a time."""
    handshakes: int = 16
    """How many connections at a time that have not proved to know the secret."""
    handshakes_each: int = 8
    """How many of these from one address."""
    session_s: float = 0
    """Seconds."""
    handshake_s: float = HANDSHAKE_S
    """Seconds that a client has to prove itself."""
    disk_bytes: int = 8 << 30
    """Files that a session uploads, together, and any single file that it writes."""
    memory_bytes: int | None = None
    """Memory of a session's process, and of its arrays; None: three quarters of the machine's."""

    @property
    def most_memory(self) -> int:
        """The limit in bytes that memory_bytes stands for."""
        return machine_memory() * 3 // 4 if self.memory_bytes is None else self.memory_bytes

    def of_process(self) -> list[tuple[int, int]]:
        """The resources of a session's process that are limited, and to what.

        The memory that was given as a limit is that of all addresses. By default only what can be
        written counts: drivers of devices reserve far more addresses than any machine has memory.
        """
        of_memory = resource.RLIMIT_DATA if self.memory_bytes is None else resource.RLIMIT_AS
        wanted = [(resource.RLIMIT_FSIZE, self.disk_bytes), (of_memory, self.most_memory)]
        return [(resource.RLIMIT_CORE, 0)] + [(which, most) for which, most in wanted if most]


def machine_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A server's name, where clients find it, and its limits."""

    key: str = ""
    tracker: tuple[str, int] | None = None
    proxy: tuple[str, int] | None = None
    custom_addr: str | None = None
    """Where clients reach it, if that is not the address that the tracker sees."""
    load_library: tuple[str, ...] = ()
    silent: bool = False
    no_fork: bool = False
    """Start a new interpreter for each session instead of a copy of the server's process."""
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    """The certificates by which the tracker and the proxy are known."""
    limits: Limits = Limits()

    def certificate(self) -> Certificate | None:
        """What to speak TLS with."""
        return None if self.tls_cert is None else Certificate(self.tls_cert, self.tls_key)

    def to_json(self) -> str:
        """All of it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What to_json wrote."""
        fields = json.loads(text)
        for name in ("tracker", "proxy"):
            fields[name] = None if fields[name] is None else tuple(fields[name])
        fields["load_library"] = tuple(fields["load_library"])
        return cls(**{**fields, "limits": Limits(**fields["limits"])})

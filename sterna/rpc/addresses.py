"""Addresses, connections and TLS."""

import ipaddress
import secrets
import socket
import ssl
import time
from dataclasses import dataclass

from sterna.rpc.errors import RPCError
from sterna.rpc.streams import SocketStream
from sterna.support.options import options

CONNECT_S = 60.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate and its private key, in files of PEM."""

    certificate: str
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """What a server speaks TLS with."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(self.certificate, self.key)
        return made


def client_context(ca_file: str | None) -> ssl.SSLContext | None:
    """What a client speaks TLS with; None for a plain connection."""
    if ca_file is None:
        return None
    # Servers are found by address, through trackers and tunnels: whoever has a certificate of the
    # user's own authority and knows the secret is the server, whatever its name is.
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.check_hostname = False
    made.load_verify_locations(ca_file)
    return made


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host's addresses."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(f"the host '{host}' is not known: {error}") from None
    return all(ipaddress.ip_address(str(each[4][0])).is_loopback for each in found)


def check_may_listen(host: str, secret: bytes | None) -> None:
    """Refuse to be reachable from outside without a secret."""
    if secret is None and not is_loopback(host):
        raise PermissionError(
            f"listening on '{host}' would let everybody who reaches it run programs here; listen "
            f"on 127.0.0.1, or {_make_a_secret('clients, trackers and servers')}"
        )


def check_may_wait(proxy_host: str, secret: bytes | None) -> None:
    """Refuse to serve whoever reaches a proxy elsewhere, without a secret."""
    if secret is None and not is_loopback(proxy_host):
        raise PermissionError(
            f"waiting for clients at the proxy on '{proxy_host}' would let everybody who reaches "
            f"it run programs here; {_make_a_secret('clients, proxies and servers')}"
        )


def _make_a_secret(ends: str) -> str:
    """A line to copy, with a secret that was made for it."""
    return (
        f"give a secret to {ends} by the same line on each machine:\n"
        f"export STERNA_RPC_SECRET={secrets.token_hex(32)}"
    )


def listen(host: str, port: int, port_end: int, reuse: bool = True) -> socket.socket:
    """A socket that listens on the first free port of a range; on any free one if port is 0."""
    found = socket.getaddrinfo(
        host or "127.0.0.1", None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, address = found[0][0], str(found[0][4][0])
    last: OSError | None = None
    port_end = port_end if port_end >= port else port + 99
    for each in range(port, port_end + 1) if port else [0]:
        made = socket.socket(family, socket.SOCK_STREAM)
        if reuse:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((address, each))
            made.listen(128)
        except OSError as error:
            made.close()
            last = error
            continue
        return made
    raise OSError(f"no port of {host} from {port} to {port_end} is free: {last}")


def open_stream(
    host: str, port: int, tls_ca: str | None = None, seconds: float = CONNECT_S
) -> SocketStream:
    """A connection to a host; the reason when there is none names it."""
    end = time.monotonic() + seconds
    try:
        sock = socket.create_connection((host, port), timeout=seconds)
    except OSError as error:
        raise RPCError(
            f"cannot connect to {host}:{port}: {error}; is a server running there?"
        ) from None
    context = client_context(tls_ca or options.rpc_tls_ca)
    if context is not None:
        try:
            sock.settimeout(max(0.01, end - time.monotonic()))
            sock = context.wrap_socket(sock)
        except (OSError, ssl.SSLError) as error:
            sock.close()
            raise PermissionError(
                f"{host}:{port} shows no certificate that is trusted here: {error}"
            ) from None
    stream = SocketStream(sock)
    stream.set_deadline(end)
    return stream


def split_address(text: str, what: str = "--tracker") -> tuple[str, int]:
    """Host and port of text like 192.168.1.2:9190 or [::1]:9190."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ValueError(f"{what} {text!r} has not the form HOST:PORT")
    return host.strip("[]"), int(port)

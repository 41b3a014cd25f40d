"""What listens at an address? Asked in the servers' own protocols, so that no driver is needed."""

from __future__ import annotations

import re
import socket
import struct
from dataclasses import dataclass

__all__ = ["PROBES", "Found", "probe_amqp", "probe_mysql", "probe_postgresql", "probe_redis"]

SECONDS = 3


@dataclass(frozen=True)
class Found:
    """``database`` is postgresql, mysql, mariadb, redis or rabbitmq; ``version`` is empty where it does not say."""

    database: str
    version: str = ""


def probe_mysql(host: str, port: int) -> Found | None:
    """MySQL or MariaDB. They speak first, and the greeting tells them apart by its version."""
    try:
        with socket.create_connection((host, port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            greeting = connection.recv(256)
    except OSError:
        return None
    # Three bytes of length, one of sequence, the protocol's number, then text up to a NUL.
    if len(greeting) < 6 or greeting[4] != 10:
        return None
    text = greeting[5:].split(b"\0", 1)[0].decode("ascii", "replace")
    if "mariadb" in text.lower():
        # "5.5.5-" stands before the real version, for the sake of old clients.
        return Found("mariadb", text.removeprefix("5.5.5-").split("-", 1)[0])
    return Found("mysql", re.split(r"[^0-9.]", text, maxsplit=1)[0])


def probe_postgresql(host: str, port: int) -> Found | None:
    """PostgreSQL answers a request for TLS with one letter, S or N; no other server does."""
    try:
        with socket.create_connection((host, port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            connection.sendall(struct.pack("!ii", 8, 80877103))
            answer = connection.recv(1)
    except OSError:
        return None
    return Found("postgresql") if answer in (b"S", b"N") else None


def probe_redis(host: str, port: int) -> Found | None:
    """Redis answers a PING; one that wants a password says so."""
    try:
        with socket.create_connection((host, port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
    except OSError:
        return None
    return Found("redis") if answer.startswith((b"+PONG", b"-NOAUTH")) else None


def probe_amqp(host: str, port: int) -> Found | None:
    """RabbitMQ answers the header of AMQP 0-9-1 with a frame that holds its name and version."""
    try:
        with socket.create_connection((host, port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            connection.sendall(b"AMQP\0\0\x09\x01")
            answer = connection.recv(4096)
    except OSError:
        return None
    if b"RabbitMQ" not in answer:
        return None
    # A "long string": its mark, four bytes of length, then the text.
    version = re.search(rb"\x07versionS(.{4})", answer, re.DOTALL)
    if version is None:
        return Found("rabbitmq")
    length = int.from_bytes(version.group(1), "big")
    return Found("rabbitmq", answer[version.end() : version.end() + length].decode("ascii", "replace"))


PROBES = {
    "postgresql": probe_postgresql,
    "mysql": probe_mysql,
    "mariadb": probe_mysql,
    "redis": probe_redis,
    "amqp": probe_amqp,
}
"""How to ask for each kind of server, by the scheme of its address."""

"""Redis and RabbitMQ, for the tests of dispatchers: found running, or started from what is installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.binaries import _binary as binary
from tests.servers.probe import PROBES
from tests.servers.processes import (
    CannotStart,
    PrivateServer,
    free_port,
    launch,
    private_directory,
    user_for,
)

__all__ = [
    "BROKERS",
    "Broker",
    "broker_variable",
    "find_broker",
    "relaunch",
    "start_rabbitmq",
    "start_redis",
]

HOST = "127.0.0.1"

RUNNING = {
    "redis": f"redis://{HOST}:6379/0",
    "rabbitmq": f"amqp://guest:guest@{HOST}:5672//",
}
"""Where they usually are."""


@dataclass
class Broker:
    """A broker that tests may use; ``private`` is set where somebody has to stop it."""

    name: str
    url: str
    private: PrivateServer | None = None


def broker_variable(name: str) -> str:
    """The environment variable that holds the address of a broker."""
    return f"GENEVA_TEST_{name.upper()}_URL"


def find_broker(name: str, environ: Mapping[str, str]) -> Broker:
    """The broker to test with. Raises ``CannotStart`` with the reason where there is none."""
    url = environ.get(broker_variable(name))
    if url:
        if not _answers(url):
            raise CannotStart(
                f"{broker_variable(name)} names {urlsplit(url).hostname}: no {name} answers there"
            )
        return Broker(name, url)
    if _answers(RUNNING[name]):
        return Broker(name, RUNNING[name])
    private = BROKERS[name](None)
    return Broker(name, private.url, private)


def _answers(url: str) -> bool:
    address = urlsplit(url)
    port = address.port or urlsplit(RUNNING["redis" if address.scheme == "redis" else "rabbitmq"]).port
    assert port is not None
    return PROBES[address.scheme](address.hostname or HOST, port) is not None


def start_redis(port: int | None = None) -> PrivateServer:
    """A Redis of our own, which keeps what it was told in a file. Raises ``CannotStart``."""
    server = binary("redis-server")
    user = user_for("redis")
    port = port or free_port()
    directory = private_directory("redis", user)
    return launch_redis(server, port, directory, user)


def launch_redis(server: str, port: int, directory: Path, user: str | None) -> PrivateServer:
    """Start Redis in a folder that may have been used before: it goes on with what it had."""
    command = [server, "--port", str(port), "--bind", HOST, "--dir", str(directory)]
    command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    return launch(command, f"redis://{HOST}:{port}/0", directory, user)


def start_rabbitmq(port: int | None = None) -> PrivateServer:
    """A RabbitMQ of our own. Raises ``CannotStart``."""
    server = _rabbitmq()
    user = user_for("rabbitmq")
    directory = private_directory("rabbitmq", user)
    plugins = directory / "plugins"
    plugins.write_text("[].")
    plugins.chmod(0o644)
    return launch_rabbitmq(server, port or free_port(), directory, user)


def launch_rabbitmq(server: str, port: int, directory: Path, user: str | None) -> PrivateServer:
    """Start RabbitMQ in a folder that may have been used before: it goes on with what it had."""
    variables = {
        # Its cookie lies at home.
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"geneva{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
    }
    command = ["env", *(f"{name}={value}" for name, value in variables.items()), server]
    return launch(command, f"amqp://guest:guest@{HOST}:{port}//", directory, user)


def _rabbitmq() -> str:
    # Debian's wrapper in /usr/sbin would change to the user of the installed server.
    installed = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    return str(installed) if installed.exists() else binary("rabbitmq-server")


BROKERS: dict[str, Callable[[int | None], PrivateServer]] = {
    "redis": start_redis,
    "rabbitmq": start_rabbitmq,
}


def relaunch(stopped: PrivateServer) -> None:
    """Start a broker of ours again that was stopped: at its place, with what it had written down."""
    address = urlsplit(stopped.url)
    assert address.port is not None
    if address.scheme == "redis":
        again = launch_redis(binary("redis-server"), address.port, stopped.directory, user_for("redis"))
    else:
        again = launch_rabbitmq(_rabbitmq(), address.port, stopped.directory, user_for("rabbitmq"))
    stopped.process = again.process

"""Finding servers, and starting our own."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.conftest import DATABASE
from tests.servers.binaries import STARTERS
from tests.servers.brokers import BROKERS, broker_variable, find_broker, relaunch, start_redis
from tests.servers.databases import ALIASES, database_settings, url_variable
from tests.servers.find import find
from tests.servers.login import server_version
from tests.servers.probe import PROBES
from tests.servers.processes import CannotStart

if DATABASE != "sqlite":

    def test_a_server_of_our_own_runs_until_it_is_stopped() -> None:
        try:
            server = STARTERS[DATABASE](None)
        except CannotStart as error:
            pytest.skip(str(error))
        try:
            assert server.found.database == DATABASE
            assert server_version(server.url)[0].isdigit()
        finally:
            server.stop()

        assert PROBES[DATABASE]("127.0.0.1", urlsplit(server.url).port or 0) is None
        assert not server.directory.exists()

    def test_a_server_named_by_its_address_is_the_one_that_is_used() -> None:
        url = os.environ.get(url_variable(DATABASE)) or find(DATABASE, {}).url

        found = find(DATABASE, {url_variable(DATABASE): url})

        assert (found.url, found.private) == (url, None)

    def test_an_address_where_nobody_answers_is_not_passed_over_in_silence() -> None:
        with closing(socket.socket()) as bound:
            # Bound but not listening, so that no other server takes the port meanwhile.
            bound.bind(("127.0.0.1", 0))
            address = f"{DATABASE}://127.0.0.1:{bound.getsockname()[1]}/"

            with pytest.raises(CannotStart, match="nothing answers there"):
                find(DATABASE, {url_variable(DATABASE): address})


def test_a_redis_of_our_own_goes_on_with_what_it_had_when_it_is_killed_and_started_again() -> None:
    try:
        server = start_redis()
    except CannotStart as error:
        pytest.skip(str(error))
    try:
        server.process.kill()
        server.process.wait()
        port = urlsplit(server.url).port or 0
        assert PROBES["redis"]("127.0.0.1", port) is None
        relaunch(server)
        assert find_broker("redis", {broker_variable("redis"): server.url}).private is None
    finally:
        server.stop()
    assert not server.directory.exists()


@pytest.mark.parametrize("name", sorted(BROKERS))
def test_a_broker_is_not_looked_for_elsewhere_when_its_address_is_given(name: str) -> None:
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        scheme = {"redis": "redis", "rabbitmq": "amqp"}[name]
        address = f"{scheme}://127.0.0.1:{bound.getsockname()[1]}/"

        with pytest.raises(CannotStart, match=f"no {name} answers there"):
            find_broker(name, {broker_variable(name): address})


@pytest.mark.parametrize("database", ["postgresql", "mysql", "mariadb"])
def test_an_address_is_taken_apart_for_django(database: str) -> None:
    environ = {
        "GENEVA_TEST_DATABASE": database,
        "GENEVA_TEST_NAME": "stem",
        url_variable(database): f"{database}://us%40er:p%2Fw@db.example:1234/",
    }

    described = database_settings(environ)["default"]

    assert {key: described[key] for key in ("NAME", "HOST", "PORT", "USER", "PASSWORD")} == {
        "NAME": "stem",
        "HOST": "db.example",
        "PORT": "1234",
        "USER": "us@er",
        "PASSWORD": "p/w",
    }


@pytest.mark.parametrize("database", ["sqlite", "postgresql", "mysql", "mariadb"])
def test_a_process_that_a_test_starts_is_given_existing_databases(database: str) -> None:
    environ = {"GENEVA_TEST_DATABASE": database, "GENEVA_TEST_NAMES": '{"default": "one", "other": "two"}'}

    described = database_settings(environ)

    assert [described[alias]["NAME"] for alias in ALIASES] == ["one", "two"]


def test_a_database_unknown_to_the_suite_is_refused() -> None:
    with pytest.raises(ValueError, match="'oracle'; it must be one of sqlite"):
        database_settings({"GENEVA_TEST_DATABASE": "oracle"})

"""``manage.py geneva_hero_key``: the report and the conversion."""

from __future__ import annotations

import io
import json
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.db import DEFAULT_DB_ALIAS, IntegrityError, connection, models, transaction
from django.utils import timezone

from geneva_drive.models import Workflow, columns
from geneva_drive.models.hero_key_conversion import convert
from tests import warm_processes
from tests.columnsapp.models import IntegerHero, TextHero, UUIDHero

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

A_UUID = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")


def run(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit status and output."""
    out = io.StringIO()
    try:
        call_command("geneva_hero_key", *arguments, stdout=out, stderr=out)
    except CommandError as error:
        return error.returncode, f"{out.getvalue()}{error}"
    return 0, out.getvalue()


def row(model: type[models.Model], key: Any, **values: Any) -> Workflow:
    now = timezone.now()
    workflow = Workflow(type="shop.Order", created_at=now, updated_at=now)
    workflow.hero_type = ContentType.objects.get_for_model(model)
    workflow.hero_id = key
    for name, value in values.items():
        setattr(workflow, name, value)
    models.Model.save(workflow, force_insert=True)
    return workflow


def keys() -> list[Any]:
    return list(Workflow.objects.order_by("created_at").values_list("hero_id", flat=True))


@pytest.fixture
def column(heroes_installed: None, transactional_db: None) -> Iterator[Callable[[str], None]]:
    """Convert the column to a type, and back at the end."""
    # The flush after another test deletes content types too.
    ContentType.objects.clear_cache()
    original = columns.hero_key_kind(DEFAULT_DB_ALIAS)

    def become(kind: str) -> None:
        if columns.hero_key_kind(DEFAULT_DB_ALIAS) != kind:
            convert(DEFAULT_DB_ALIAS, kind)

    yield become
    Workflow._base_manager.all()._raw_delete(DEFAULT_DB_ALIAS)
    become(original)


def describe_constraints() -> dict[str, tuple[list[str], bool]]:
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, columns.WORKFLOW_TABLE)
    return {
        name: (constraint["columns"], constraint["unique"])
        for name, constraint in found.items()
        if not constraint["foreign_key"] and not constraint["check"]
    }


class TestShowing:
    def test_reports_the_decision_and_the_reason(self, heroes_installed: None, db: None) -> None:
        status, output = run()

        kind = columns.hero_key_kind(DEFAULT_DB_ALIAS)
        assert status == 0
        assert f"Column: {kind}" in output
        assert "columnsapp.TextHero: " in output
        assert "auth.User" in output
        assert "sessions" not in output

    def test_reports_it_as_json(self, heroes_installed: None, db: None) -> None:
        status, output = run("--json")

        described = json.loads(output)
        count = columns.count_hero_keys(DEFAULT_DB_ALIAS)
        assert status == 0
        assert described["database"] == DEFAULT_DB_ALIAS
        assert described["column"]["kind"] == columns.hero_key_kind(DEFAULT_DB_ALIAS)
        assert described["decision"] == columns.declared_kind(DEFAULT_DB_ALIAS)
        assert described["counts"] == {
            "uuid": count.uuids,
            "string": count.strings,
            "integer": count.integers,
        }
        (text,) = [model for model in described["models"] if model["label"] == "columnsapp.TextHero"]
        assert (text["family"], text["source"]) == ("string", "column")

    def test_advises_if_the_current_models_would_change_the_decision(
        self, column: Callable[[str], None], settings: Any
    ) -> None:
        column("bigint")
        settings.GENEVA_DRIVE = {**settings.GENEVA_DRIVE, "HERO_KEY_TYPE": "string"}

        _, output = run()

        assert "--to string" in output

    @pytest.mark.django_db(databases=["default", "other"])
    def test_reports_another_database(self) -> None:
        status, output = run("--using", "other", "--json")

        assert (status, json.loads(output)["database"]) == (0, "other")


class TestConverting:
    def test_integers_become_text_and_back(self, column: Callable[[str], None]) -> None:
        column("bigint")
        numbers = [-(2**63), -1, 0, 7, 2**31, 2**63 - 1]
        for number in numbers:
            row(IntegerHero, number)
        before = describe_constraints()

        assert run("--to", "string", "--no-input")[0] == 0
        assert keys() == [str(number) for number in numbers]
        assert columns.hero_key_kind(DEFAULT_DB_ALIAS) == "string"

        assert run("--to", "bigint", "--no-input")[0] == 0
        assert keys() == numbers
        assert describe_constraints() == before

    def test_uuids_become_text_as_the_database_casts_it_and_back(self, column: Callable[[str], None]) -> None:
        column("uuid")
        hero = UUIDHero.objects.create(pk=A_UUID)
        row(UUIDHero, A_UUID)

        assert run("--to", "string", "--no-input")[0] == 0
        text = str(A_UUID) if connection.features.has_native_uuid_field else A_UUID.hex
        assert keys() == [text]
        assert list(UUIDHero.objects.filter(workflows__state="ready")) == [hero]
        # Two spellings of the same UUID would break uniqueness.
        with pytest.raises(IntegrityError), transaction.atomic():
            row(UUIDHero, A_UUID)

        assert run("--to", "uuid", "--no-input")[0] == 0
        assert keys() == [A_UUID]

    def test_the_hero_keeps_its_slot(self, column: Callable[[str], None]) -> None:
        column("bigint")
        row(IntegerHero, 7)
        for target, key in (("string", 7), ("bigint", 7)):
            assert run("--to", target, "--no-input")[0] == 0

            with pytest.raises(IntegrityError), transaction.atomic():
                row(IntegerHero, key)
            row(IntegerHero, key, state="finished")

    def test_refuses_text_that_would_not_be_read_back_equal(self, column: Callable[[str], None]) -> None:
        column("string")
        for texts in (
            ["abc"], ["7", "07"], ["+7"], ["7 "], [" 7"], ["-0"], ["٧"], [str(2**63)], ["1e3"], [""], ["7", "x"],
        ):  # fmt: skip
            for text in texts:
                row(IntegerHero, text)

            for target in ("bigint", "uuid"):
                status, output = run("--to", target, "--no-input")
                assert (status, "Nothing was changed" in output) == (1, True), (texts, target)
                assert keys() == texts
            Workflow._base_manager.all()._raw_delete(DEFAULT_DB_ALIAS)
        assert columns.hero_key_kind(DEFAULT_DB_ALIAS) == "string"

    def test_refuses_keys_that_would_become_the_same_uuid(self, column: Callable[[str], None]) -> None:
        column("string")
        texts = [A_UUID.hex, A_UUID.hex.upper(), str(A_UUID), str(A_UUID).upper(), f"{{{A_UUID}}}"]
        for text in texts:
            row(UUIDHero, text)

        status, output = run("--to", "uuid", "--no-input", "--json")

        assert status == 1
        assert json.loads(output[: output.rindex("}") + 1])["misfit_count"] == len(texts) - 1
        assert keys() == texts

    @pytest.mark.parametrize(("target", "key"), [("bigint", "7"), ("uuid", A_UUID)])
    def test_refuses_heroes_whose_own_key_is_text(
        self, column: Callable[[str], None], target: str, key: Any
    ) -> None:
        column("string")
        row(TextHero, key)

        status, output = run("--to", target, "--no-input")

        assert status == 1
        assert "columnsapp.texthero" in output

    def test_integers_and_uuids_cannot_be_converted_to_each_other(
        self, column: Callable[[str], None]
    ) -> None:
        column("bigint")
        row(IntegerHero, 7)
        assert run("--to", "uuid", "--no-input")[0] == 1
        assert keys() == [7]

    def test_a_column_without_heroes_can_be_converted_to_anything(
        self, column: Callable[[str], None]
    ) -> None:
        column("bigint")
        row(IntegerHero, None, hero_type=None)
        for target in ("uuid", "bigint", "string", "uuid", "string", "bigint"):
            assert run("--to", target, "--no-input")[0] == 0
            assert columns.hero_key_kind(DEFAULT_DB_ALIAS) == target
            assert keys() == [None]

    def test_a_dry_run_changes_nothing(self, column: Callable[[str], None]) -> None:
        column("bigint")
        row(IntegerHero, 7)

        status, output = run("--to", "string", "--dry-run", "--json")

        described = json.loads(output)
        assert status == 0
        assert (described["rows"], described["misfit_count"], described["converted"]) == (1, 0, False)
        assert keys() == [7]
        assert run("--to", "uuid", "--dry-run")[0] == 1

    def test_converting_to_the_current_kind_does_nothing(self, column: Callable[[str], None]) -> None:
        column("string")
        status, output = run("--to", "string", "--no-input")
        assert (status, "Nothing to do" in output) == (0, True)

    def test_rows_are_checked_in_batches(
        self, column: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        column("string")
        monkeypatch.setattr("geneva_drive.models.hero_key_conversion._BATCH", 3)
        for number in range(10):
            row(IntegerHero, str(number))
        row(IntegerHero, "x")

        status, output = run("--to", "bigint", "--no-input", "--json")

        described = json.loads(output[: output.rindex("}") + 1])
        assert (status, described["rows"], described["misfit_count"]) == (1, 11, 1)

    def test_asks_before_it_locks_the_table(
        self, column: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        column("bigint")
        monkeypatch.setattr("builtins.input", lambda question: "no")
        assert run("--to", "string")[0] == 1
        assert columns.hero_key_kind(DEFAULT_DB_ALIAS) == "bigint"

        monkeypatch.setattr("builtins.input", lambda question: "yes")
        assert run("--to", "string")[0] == 0
        assert columns.hero_key_kind(DEFAULT_DB_ALIAS) == "string"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "arguments",
    [["--using", "nowhere"], ["--dry-run"], ["--using", "nowhere", "--json"]],
    ids=" ".join,
)
def test_usage_errors_have_their_own_status(arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2


@pytest.mark.django_db(transaction=True)
def test_the_command_exits_with_the_statuses(child_environment: Callable[[], dict[str, str]]) -> None:
    def status(*arguments: str) -> int:
        command = [sys.executable, "-m", "django", "geneva_hero_key", *arguments]
        return warm_processes.run(command, env=child_environment()).returncode

    assert status("--json") == 0
    assert status("--to", "text") == 2

"""JSON values are equal after a round trip, whatever the column's type."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from django.core import serializers
from django.core.exceptions import ValidationError
from django.db import DEFAULT_DB_ALIAS, connection, models
from django.forms import modelform_factory
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from geneva_drive.exceptions import PayloadError
from geneva_drive.models import Workflow, columns
from geneva_drive.models.fields import JSONColumn
from geneva_drive.serialization import MAX_DEPTH, MAX_KEY_BYTES, Unreadable, dumps
from tests.conftest import DATABASE
from tests.serialization.test_round_trips import VALUES, nested, same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import DjangoDbBlocker

EVERYTHING: dict[str, Any] = {
    "none": None,
    "numbers": [0, 1, 1.0, -0.0, 0.1 + 0.2, 1e22, 5e-324, 2**63 - 1, -(2**63), True],
    "text": "Straße 😀 \x01 \" ' \\ \\u0041 %s %(x)s",
    "moment": datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
    "elapsed": timedelta(days=1, microseconds=1),
    "amount": Decimal("1.50"),
    "id": uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
    "several": ({1, 2}, b"\0", []),
    "like a tag": {"$uuid": "not one"},
    "": {"": {}},
}


def row(metadata: Any = None) -> Workflow:
    now = timezone.now()
    workflow = Workflow(type="shop.Order", created_at=now, updated_at=now, metadata=metadata)
    models.Model.save(workflow, force_insert=True)
    return workflow


def stored(workflow: Workflow) -> Any:
    """Return the raw value of the column, without the field."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT metadata FROM {columns.WORKFLOW_TABLE}")
        return cursor.fetchone()[0]


def read(workflow: Workflow) -> Any:
    return Workflow._base_manager.get(pk=workflow.pk).metadata


def write(workflow: Workflow, value: Any) -> None:
    Workflow._base_manager.filter(pk=workflow.pk).update(metadata=value)


TYPES = {
    "sqlite": ["text", "varchar(5000)"],
    "postgresql": ["jsonb", "json", "text", "varchar(5000)"],
    "mysql": ["json", "longtext", "varchar(5000)", "longtext CHARACTER SET latin1"],
    "mariadb": ["longtext", "varchar(5000)", "longtext CHARACTER SET latin1", "json"],
}


def become(wanted: str, before: str) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                f"ALTER TABLE {columns.WORKFLOW_TABLE} ALTER metadata TYPE {wanted} USING metadata::{wanted}"
            )
        elif connection.vendor == "sqlite":
            # Its columns cannot be altered; its catalog shows the declared type.
            cursor.execute("PRAGMA writable_schema = ON")
            cursor.execute(
                "UPDATE sqlite_master SET sql = replace(sql, %s, %s) WHERE name = %s",
                [f'"metadata" {before}', f'"metadata" {wanted}', columns.WORKFLOW_TABLE],
            )
            cursor.execute("PRAGMA writable_schema = RESET")
        else:
            cursor.execute(f"ALTER TABLE {columns.WORKFLOW_TABLE} MODIFY metadata {wanted} NULL")
    columns.reset(DEFAULT_DB_ALIAS)


@pytest.fixture(scope="module")
def column_type(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """The column ``metadata`` as each type that an installation may have."""
    ours = TYPES[DATABASE][0]
    with django_db_blocker.unblock():
        become(request.param, ours)
    yield request.param
    with django_db_blocker.unblock():
        become(ours, request.param)


every_column = pytest.mark.parametrize("column_type", TYPES[DATABASE], indirect=True)


@pytest.mark.django_db
class TestOnEveryColumn:
    @every_column
    def test_values_are_read_back_equal(self, column_type: str) -> None:
        workflow = row(EVERYTHING)

        assert same(read(workflow), EVERYTHING)
        for value in EVERYTHING.values():
            write(workflow, value)
            assert same(read(workflow), value)

    @every_column
    def test_nothing_is_encoded_twice(self, column_type: str) -> None:
        workflow = row(EVERYTHING)
        before = stored(workflow)
        text = before if isinstance(before, str) else json.dumps(before)

        assert json.loads(text) == json.loads(dumps(EVERYTHING))
        for _ in range(3):
            write(workflow, read(workflow))
            assert stored(workflow) == before

    @every_column
    def test_none_an_empty_dict_and_an_empty_list_stay_distinct(self, column_type: str) -> None:
        workflow = row()
        values: list[Any] = [None, {}, [], None, "", 0, False]
        for value in values:
            write(workflow, value)
            assert same(read(workflow), value)
            assert Workflow._base_manager.filter(metadata__isnull=True).exists() is (value is None)

    @every_column
    def test_strings_that_look_like_json_stay_strings(self, column_type: str) -> None:
        workflow = row()
        for value in ("null", "5", '"quoted"', "{}", '{"a": 1}', "[", "true"):
            write(workflow, value)
            assert read(workflow) == value

    @every_column
    def test_bulk_writes_work_too(self, column_type: str) -> None:
        workflow, other = row(), row()
        workflow.metadata, other.metadata = EVERYTHING, None

        Workflow._base_manager.bulk_update([workflow, other], ["metadata"])

        assert same(read(workflow), EVERYTHING)
        assert read(other) is None

    @every_column
    def test_values_written_by_an_older_version_are_read(self, column_type: str) -> None:
        workflow = row({})
        for text, value in (
            ('{"a": [1, 2.5, null], "b": "\\u00e9"}', {"a": [1, 2.5, None], "b": "é"}),
            ("null", None),
            ('"text"', "text"),
        ):
            with connection.cursor() as cursor:
                cursor.execute(f"UPDATE {columns.WORKFLOW_TABLE} SET metadata = %s", [text])
            assert same(read(workflow), value)


@pytest.mark.django_db
@pytest.mark.parametrize("column_type", ["varchar(5000)"], indirect=True)
@pytest.mark.parametrize("text", ["", "{'a': 1}", "not json"])
def test_invalid_json_raises_only_when_it_is_used(column_type: str, text: str) -> None:
    workflow = row({})
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {columns.WORKFLOW_TABLE} SET metadata = %s", [text])

    value = read(workflow)

    assert isinstance(value, Unreadable)
    with pytest.raises(PayloadError):
        bool(value)
    write(workflow, value)
    assert stored(workflow) == text


@pytest.mark.django_db
@pytest.mark.parametrize("column_type", TYPES[DATABASE][:1], indirect=True)
@pytest.mark.usefixtures("column_type")
class TestOnOurColumn:
    @hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
    @given(value=VALUES)
    def test_written_values_are_read_back(self, value: Any) -> None:
        workflow = row(value)

        assert same(read(workflow), value)

        Workflow._base_manager.filter(pk=workflow.pk)._raw_delete(DEFAULT_DB_ALIAS)

    @hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
    @given(value=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
    def test_floats_are_read_back_to_the_last_bit(self, value: list[float]) -> None:
        workflow = row(value)

        assert list(map(repr, read(workflow))) == list(map(repr, value))

        Workflow._base_manager.filter(pk=workflow.pk)._raw_delete(DEFAULT_DB_ALIAS)

    def test_the_deepest_allowed_value_is_stored(self) -> None:
        deepest = {"a": nested(MAX_DEPTH - 1, lambda value: [value])}
        assert read(row(deepest)) == deepest

    def test_the_longest_allowed_key_is_stored(self) -> None:
        value = {"é" * (MAX_KEY_BYTES // 2): 1}
        assert read(row(value)) == value

    @pytest.mark.parametrize(
        "value",
        [float("nan"), {"a": float("inf")}, {1: 2}, "\0", ["\ud800"], 2**63, object(), nested(101, lambda v: [v])],
        ids=lambda value: repr(value)[:30].partition(" at 0x")[0],
    )  # fmt: skip
    def test_a_value_that_one_database_cannot_store_is_refused_on_all(self, value: Any) -> None:
        with pytest.raises(PayloadError, match=r"^metadata"):
            row(value)
        with pytest.raises(ValidationError, match="metadata"):
            Workflow._meta.get_field("metadata").clean(value, None)

    def test_plain_keys_can_be_looked_up(self) -> None:
        workflow = row({"colour": "red", "n": 3})
        row({"colour": "blue"})

        found = Workflow._base_manager.filter(metadata__n=3)
        assert [workflow.pk for workflow in found] == [workflow.pk]
        assert list(found.values_list("metadata__colour", "metadata__n")) == [("red", 3)]

    def test_the_column_is_the_one_that_the_field_asks_for(self, database: str) -> None:
        field = Workflow._meta.get_field("metadata")
        assert isinstance(field, JSONColumn)
        storage = columns.json_storage(connection, columns.WORKFLOW_TABLE, "metadata")

        assert storage == {"postgresql": "jsonb", "mysql": "json"}.get(database, "text")
        assert field.db_check(connection) is None

    def test_fixtures_keep_values(self) -> None:
        workflow = row(EVERYTHING)
        workflow.refresh_from_db()
        for form in ("json", "jsonl"):
            (restored,) = serializers.deserialize(form, serializers.serialize(form, [workflow]))
            assert same(vars(restored.object)["metadata"], EVERYTHING)
        (restored,) = serializers.deserialize("json", serializers.serialize("json", [row({"a": 1})]))
        assert same(vars(restored.object)["metadata"], {"a": 1})


@pytest.mark.parametrize("column_type", TYPES[DATABASE][:1], indirect=True)
@pytest.mark.usefixtures("column_type")
class TestForms:
    """The admin's JSON fields."""

    @pytest.fixture
    def form_class(self) -> Any:
        return modelform_factory(Workflow, fields=["metadata"])

    @pytest.mark.django_db
    def test_saving_an_untouched_form_changes_nothing(self, form_class: Any) -> None:
        workflow = row(EVERYTHING)
        before = stored(workflow)
        for _ in range(3):
            shown = form_class(instance=Workflow._base_manager.get(pk=workflow.pk))["metadata"].value()
            form = form_class({"metadata": shown}, instance=Workflow._base_manager.get(pk=workflow.pk))
            assert form.is_valid(), form.errors
            assert not form.has_changed()
            write(workflow, form.cleaned_data["metadata"])
            assert stored(workflow) == before

    @pytest.mark.django_db
    def test_changing_a_key_changes_that_key(self, form_class: Any) -> None:
        workflow = row(EVERYTHING)
        shown = json.loads(form_class(instance=workflow)["metadata"].value())
        shown["amount"] = {"$decimal": "2.50"}
        form = form_class({"metadata": json.dumps(shown)}, instance=workflow)

        assert form.has_changed()
        assert form.is_valid()
        assert same(form.cleaned_data["metadata"], {**EVERYTHING, "amount": Decimal("2.50")})

    @pytest.mark.parametrize(
        "text", ["{", '{"$decimal": "much"}', '{"$unknown": 1}', "NaN", '{"a": "\\u0000"}']
    )
    def test_a_value_that_cannot_be_stored_is_a_form_error(self, form_class: Any, text: str) -> None:
        form = form_class({"metadata": text})

        assert list(form.errors) == ["metadata"]
        assert form["metadata"].value() in (text, json.dumps(json.loads(text)) if text != "{" else text)

    def test_an_empty_field_is_none(self, form_class: Any) -> None:
        form = form_class({"metadata": ""})
        assert form.is_valid()
        assert form.cleaned_data["metadata"] is None

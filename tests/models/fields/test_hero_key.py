"""Keys of every kind of hero, on every kind of column."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.db import DEFAULT_DB_ALIAS, IntegrityError, connection, models, transaction
from django.db.models import Count, Exists, F, FilteredRelation, OuterRef, Q
from django.utils import timezone

from geneva_drive.checks import check_columns
from geneva_drive.exceptions import HeroKeyError, HeroModelGone
from geneva_drive.models import Workflow, columns
from tests.columnsapp.models import ChildHero, IntegerHero, TextHero, UUIDHero

Hero = IntegerHero | UUIDHero | TextHero

pytestmark = pytest.mark.django_db

LARGE = 2**63 - 1
A_UUID = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")


def row(hero: Hero | None, **values: Any) -> Workflow:
    """Return a row without its first step: these tests are only about the column."""
    now = timezone.now()
    workflow = Workflow(type="shop.Order", created_at=now, updated_at=now)
    if hero is not None:
        workflow.hero_type = ContentType.objects.get_for_model(hero)
        workflow.hero_id = hero.pk
    for name, value in values.items():
        setattr(workflow, name, value)
    models.Model.save(workflow, force_insert=True)
    return workflow


def fitting(kind: str) -> list[Hero]:
    """Return two heroes of each model whose keys fit; the first will have a workflow."""
    heroes: list[Hero] = []
    if kind in ("bigint", "string"):
        heroes += [IntegerHero.objects.create(pk=LARGE), IntegerHero.objects.create(pk=LARGE - 1)]
    if kind in ("uuid", "string"):
        heroes += [UUIDHero.objects.create(pk=A_UUID), UUIDHero.objects.create()]
    if kind == "string":
        heroes += [TextHero.objects.create(pk="0f8fad5b"), TextHero.objects.create(pk="Straße 😀 ")]
    return heroes


def unsaved(kind: str) -> Hero:
    """Return a hero whose key fits and that has no row."""
    heroes: dict[str, Hero] = {
        "bigint": IntegerHero(pk=404),
        "uuid": UUIDHero(),
        "string": TextHero(pk="404"),
    }
    return heroes[kind]


def test_a_key_is_read_back_as_its_models_type(kind: str) -> None:
    for hero in fitting(kind):
        stored = Workflow.objects.get(pk=row(hero).pk)

        assert stored.hero == hero
        assert type(hero)._meta.pk.to_python(stored.hero_id) == hero.pk
        if kind != "string":
            assert stored.hero_id == hero.pk


MISFITS: dict[str, list[object]] = {
    "bigint": [A_UUID, "7", 2**63, -(2**63) - 1],
    "uuid": [7, str(A_UUID), A_UUID.hex],
    "string": ["x" * 256, "nul \0", "surrogate \ud800"],
}


def test_a_key_that_does_not_fit_is_refused_and_not_written(kind: str) -> None:
    for key in [*MISFITS[kind], True, 1.5, b"bytes", (1, 2)]:
        hero = TextHero()
        hero.pk = key

        with pytest.raises(HeroKeyError, match="geneva_hero_key"), transaction.atomic():
            row(hero)

    assert not Workflow.objects.exists()


def test_a_query_for_a_key_that_does_not_fit_is_refused(kind: str) -> None:
    misfit = {"bigint": A_UUID, "uuid": 7, "string": "x" * 256}[kind]

    with pytest.raises(HeroKeyError):
        Workflow.objects.filter(hero_id=misfit).exists()
    with pytest.raises(HeroKeyError):
        Workflow.objects.filter(hero_id__in=[misfit]).exists()


ONLY_STRING = pytest.mark.parametrize("kind", ["string"], indirect=True)


@ONLY_STRING
def test_similar_keys_are_different_heroes(kind: str) -> None:
    keys = ["Abc", "ABC", "Abc ", "äbc", "abc"]
    for key in keys:
        row(TextHero(pk=key))

    for key in keys:
        assert [workflow.hero_id for workflow in Workflow.objects.filter(hero_id=key)] == [key]
        assert [workflow.hero_id for workflow in Workflow.objects.filter(hero_id__in=[key])] == [key]
        with pytest.raises(IntegrityError), transaction.atomic():
            row(TextHero(pk=key))


def test_one_ongoing_workflow_of_a_type_for_a_hero(kind: str) -> None:
    for hero in fitting(kind):
        row(hero, state="finished")
        row(hero, state="canceled")
        row(hero, state="ready", allow_multiple=True)
        row(hero, state="ready")

        for state in ("ready", "performing", "paused"):
            with pytest.raises(IntegrityError), transaction.atomic():
                row(hero, state=state)


def test_workflows_without_a_hero_never_collide(kind: str) -> None:
    row(None)
    row(None)

    assert list(Workflow.objects.values_list("hero_id", "ongoing_key")) == [(None, None)] * 2


def test_the_widest_key_fits_the_generated_column(kind: str) -> None:
    hero: Hero = {  # type: ignore[assignment]
        "bigint": IntegerHero(pk=-(2**63)),
        "uuid": UUIDHero(pk=A_UUID),
        "string": TextHero(pk="😀" * columns.STRING_LENGTH),
    }[kind]
    content_type = ContentType.objects.get_for_model(hero)

    workflow = row(hero)
    Workflow._base_manager.filter(pk=workflow.pk).update(type="😀" * 150)
    stored = Workflow._base_manager.get(pk=workflow.pk)

    text = A_UUID.hex if kind == "uuid" and not connection.features.has_native_uuid_field else str(hero.pk)
    assert stored.ongoing_key == f"{'😀' * 150}|{content_type.pk}|{text}"


def test_the_relation_joins_heroes_of_every_kind_of_key(kind: str) -> None:
    heroes = fitting(kind)
    for hero in heroes[::2]:
        row(hero, state="paused")

    for model in (IntegerHero, UUIDHero, TextHero):
        with_one = {hero for hero in heroes[::2] if isinstance(hero, model)}
        without = {hero for hero in heroes[1::2] if isinstance(hero, model)}
        everything = model.objects.all()
        condition = Q(workflows__state="paused")
        assert set(everything.filter(workflows__state="paused")) == with_one
        assert set(everything.exclude(workflows__state="paused")) == without
        assert set(everything.exclude(workflows__state="ready")) == with_one | without
        assert set(everything.filter(workflows__isnull=True)) == without
        assert set(everything.annotate(n=Count("workflows")).filter(n=1)) == with_one
        paused = everything.annotate(paused=FilteredRelation("workflows", condition=condition))
        assert set(paused.filter(paused__isnull=False)) == with_one
        assert set(everything.filter(Exists(Workflow.objects.filter(hero_id=OuterRef("pk"))))) == with_one


@ONLY_STRING
def test_the_relation_can_be_followed_back(kind: str) -> None:
    hero = TextHero.objects.create(pk="Abc", name="wanted")
    for other in (hero, IntegerHero.objects.create(pk=1, name="wanted"), TextHero.objects.create(pk="other")):
        row(other)

    assert [workflow.hero_id for workflow in Workflow.objects.filter(text_hero__name="wanted")] == ["Abc"]


def test_a_hero_can_list_its_workflows(kind: str) -> None:
    for hero in fitting(kind):
        workflow = row(hero)

        assert list(hero.workflows.all()) == [workflow]
        (fetched,) = type(hero)._default_manager.filter(pk=hero.pk).prefetch_related("workflows")
        assert [found.pk for found in fetched.workflows.all()] == [workflow.pk]


def test_heroes_are_prefetched(kind: str) -> None:
    heroes = fitting(kind)
    for hero in heroes:
        row(hero)

    workflows = list(Workflow.objects.order_by("pk").prefetch_related("hero"))

    with connection.execute_wrapper(_no_query):
        assert sorted(str(workflow.hero) for workflow in workflows) == sorted(map(str, heroes))


def _no_query(execute: Any, sql: str, *args: Any) -> Any:
    raise AssertionError(f"not prefetched: {sql}")


@pytest.mark.parametrize("kind", ["uuid", "string"], indirect=True)
def test_a_child_model_uses_its_parents_key(kind: str) -> None:
    child = ChildHero.objects.create()
    row(child)

    assert list(ChildHero.objects.filter(workflows__state="ready")) == [child]
    assert list(UUIDHero.objects.filter(workflows__state="ready")) == []  # another content type
    assert Workflow.objects.get().hero == child


def test_subqueries_work_with_every_kind_of_key(kind: str) -> None:
    heroes = fitting(kind)
    for hero in heroes:
        row(hero)

    for model in (IntegerHero, UUIDHero, TextHero):
        mine = sorted(str(hero.pk).replace("-", "") for hero in heroes if isinstance(hero, model))
        keys = model.objects.values("pk")
        for subquery in (
            model.objects.all(),
            keys,
            keys.distinct(),
            model.objects.annotate(key=F("pk")).values("key"),
            keys.filter(name="").union(keys.exclude(name="")),
        ):
            inside = Workflow.objects.filter(hero_id__in=subquery)
            outside = Workflow.objects.exclude(hero_id__in=subquery)
            assert sorted(str(found.hero_id).replace("-", "") for found in inside) == mine
            assert outside.count() == len(heroes) - len(mine)
        for hero in heroes:
            if isinstance(hero, model):
                assert Workflow.objects.get(hero_id=model.objects.filter(pk=hero.pk)[:1]).hero == hero


@pytest.mark.parametrize("kind", ["bigint", "string"], indirect=True)
def test_adjacent_large_integers_are_distinguished_in_the_database(kind: str) -> None:
    first, second = IntegerHero.objects.create(pk=LARGE), IntegerHero.objects.create(pk=LARGE - 1)
    row(first)

    assert list(IntegerHero.objects.filter(workflows__state="ready")) == [first]
    assert list(Workflow.objects.filter(hero_id__in=IntegerHero.objects.filter(pk=second.pk))) == []


def test_urls_and_forms_look_up_keys_by_text(kind: str) -> None:
    for hero in fitting(kind):
        workflow = row(hero)

        if kind == "string" and isinstance(hero, UUIDHero):
            continue  # the column holds text, and the type of key behind it is unknown
        assert Workflow.objects.get(hero_id=str(hero.pk)).pk == workflow.pk


def test_the_admin_filters_and_searches_by_key(kind: str, rf: Any, admin_user: Any) -> None:
    class HeroAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
        list_display = ("type", "hero_id", "hero")
        list_filter = ("hero_id",)
        search_fields = ("hero_id",)

    view = HeroAdmin(Workflow, admin.AdminSite())
    for hero in fitting(kind):
        row(hero)

    def shown(**parameters: str) -> set[Any]:
        request = rf.get("/", parameters)
        request.user = admin_user
        return {found.pk for found in view.get_changelist_instance(request).queryset}

    written = {workflow.pk: str(workflow.hero_id) for workflow in Workflow.objects.all()}
    for pk, text in written.items():
        assert shown(hero_id=text) == shown(hero_id__exact=text) == {pk}
        # A uuid column uses the database's own format, with or without dashes.
        part = text[:8]
        assert shown(q=part) == {other for other, key in written.items() if part in key}


def test_deleting_a_hero_keeps_its_history(kind: str) -> None:
    for hero in fitting(kind):
        workflow = row(hero)
        hero.delete()
        assert Workflow.objects.get(pk=workflow.pk).hero is None
        workflow_ids = list(Workflow.objects.values_list("pk", flat=True))
        type(hero)._default_manager.all().delete()
        assert list(Workflow.objects.values_list("pk", flat=True)) == workflow_ids


def test_fixtures_keep_keys(kind: str, tmp_path: Any) -> None:
    from django.core import serializers

    for hero in fitting(kind):
        workflow = row(hero)
        workflow.refresh_from_db()
        for form in ("json", "jsonl"):
            text = serializers.serialize(form, [workflow])
            (restored,) = serializers.deserialize(form, text)
            assert vars(restored.object)["hero_id"] == workflow.hero_id


def test_a_hero_whose_model_was_removed_is_not_a_missing_hero(kind: str) -> None:
    for hero in fitting(kind):
        row(hero)
    gone = row(unsaved(kind), hero_type=ContentType.objects.create(app_label="gone", model="parcel"))
    missing = row(unsaved(kind))

    for workflows in (Workflow.objects.all(), Workflow.objects.prefetch_related("hero")):
        found = {workflow.pk: workflow for workflow in workflows}
        with pytest.raises(HeroModelGone, match=r"gone\.parcel"):
            _ = found[gone.pk].hero
        assert found[missing.pk].hero is None


def test_models_whose_tables_exist_count_by_their_columns(kind: str) -> None:
    found = {key.label: key for key in columns.count_hero_keys(DEFAULT_DB_ALIAS).models}

    mine = {label: key for label, key in found.items() if label.startswith("columnsapp.")}
    assert {label: key.family for label, key in mine.items()} == {
        "columnsapp.IntegerHero": "integer",
        "columnsapp.UUIDHero": "uuid",
        "columnsapp.TextHero": "string",
        "columnsapp.ChildHero": "uuid",
    }
    assert {key.source for key in mine.values()} == {"column"}


def test_models_with_workflows_whose_keys_do_not_fit_cause_a_warning(kind: str) -> None:
    messages = [
        message
        for message in check_columns(databases=[DEFAULT_DB_ALIAS])
        if message.id == "geneva_drive.W007" and "columnsapp" in message.msg
    ]

    everything: set[object] = {IntegerHero, UUIDHero, TextHero, ChildHero}
    fits: dict[str, set[object]] = {"bigint": {IntegerHero}, "uuid": {UUIDHero, ChildHero}}
    assert {message.obj for message in messages} == everything - fits.get(kind, everything)

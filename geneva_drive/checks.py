"""System checks of the settings, the columns and the models of a project.

====  =========  ==================================================================================
id    level      what
====  =========  ==================================================================================
E001  error      ``GENEVA_DRIVE`` is not a dict
E002  error      a key that is not a setting
E003  error      a value of the wrong type, or out of range
E004  error      a foreign key to a workflow class, which has no table
E005  error      the tables have keys of another type than ``KEY_TYPE``
W006  warning    the hero key column is of another type than the current models would give it
W007  warning    a model with workflows whose key does not fit the hero key column
E009  error      a workflow class whose ``hero_model`` is not an installed model
I008  info       before the first migrate: another ``KEY_TYPE`` would suit the project better
====  =========  ==================================================================================

E005 to I008 read the database: they run with ``manage.py check --database default`` and every ``migrate``. E070
to E075 are the dispatchers' checks: ``geneva_drive.dispatchers``.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Union, get_args, get_origin, get_type_hints

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register  # noqa: A004 - Django's name
from django.db import connections, router

from geneva_drive.conf import DEFAULTS, Settings, settings
from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import DispatcherError, GenevaDriveError
from geneva_drive.lifecycle import dispatch
from geneva_drive.models import Workflow, WorkflowRelation, columns

CHOICES: dict[str, tuple[str, ...]] = {
    "HERO_KEY_TYPE": ("auto", *columns.KINDS),
    "KEY_TYPE": ("bigint", "uuid"),
    "RECOVERY_ACTION": ("reattempt", "pause", "cancel"),
}
MAY_BE_ZERO = {"UNDEFINED_STEP_GRACE", "RETENTION"}


@register
def check_settings(**_kwargs: Any) -> list[CheckMessage]:
    """Check the dict ``GENEVA_DRIVE``."""
    given = getattr(django_settings, "GENEVA_DRIVE", None)
    if given is None:
        return []
    if not isinstance(given, Mapping):
        return [Error(f"GENEVA_DRIVE must be a dict, not {given!r}.", id="geneva_drive.E001")]
    found: list[CheckMessage] = []
    hints = get_type_hints(Settings)
    for key, value in given.items():
        if key not in DEFAULTS:
            close = get_close_matches(str(key).upper(), DEFAULTS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"The keys are: {', '.join(DEFAULTS)}."
            found.append(Error(f"GENEVA_DRIVE has no key {key!r}.", hint=hint, id="geneva_drive.E002"))
            continue
        wanted = _what_is_wanted(key, value, hints[key])
        if wanted is not None:
            found.append(
                Error(f"GENEVA_DRIVE[{key!r}] is {value!r}. It must be {wanted}.", id="geneva_drive.E003")
            )
    return found


def _what_is_wanted(key: str, value: Any, hint: Any) -> str | None:
    """Return what a value should be, or None if it is right."""
    if key in CHOICES:
        return None if value in CHOICES[key] else "one of " + ", ".join(map(repr, CHOICES[key]))
    if not _is_a(value, hint):
        return _words(hint)
    if isinstance(value, timedelta):
        if value < timedelta(0) or (not value and key not in MAY_BE_ZERO):
            return "a duration of zero or more" if key in MAY_BE_ZERO else "a duration of more than zero"
    elif isinstance(value, int) and not isinstance(value, bool) and value < 1:
        return "1 or more"
    return None


def _is_a(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_is_a(value, option) for option in get_args(hint))
    if get_origin(hint) is tuple:
        items = get_args(hint)
        return isinstance(value, tuple | list) and len(value) == len(items) and all(map(_is_a, value, items))
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is str:
        return isinstance(value, str) and value != ""
    return isinstance(value, get_origin(hint) or hint)


def _words(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_words(option) for option in get_args(hint))
    if get_origin(hint) is tuple:
        return f"({', '.join(_words(item) for item in get_args(hint))})"
    hint = get_origin(hint) or hint
    return {
        str: "a string",
        int: "an integer",
        bool: "True or False",
        dict: "a dict",
        timedelta: "a timedelta",
        type(None): "None",
    }.get(hint, str(hint))


@register(Tags.models)
def check_relations(**_kwargs: Any) -> list[CheckMessage]:
    """Refuse foreign keys to workflow classes: they are hidden proxies, which migrations do not have."""
    found: list[CheckMessage] = []
    for model in apps.get_models():
        for field in (*model._meta.local_fields, *model._meta.local_many_to_many):
            target = field.remote_field.model if field.remote_field else None
            if isinstance(target, type) and issubclass(target, Workflow) and target is not Workflow:
                found.append(
                    Error(
                        f"{model._meta.label}.{field.name} points to {target.__name__}, which has no table and "
                        "does not exist in migrations.",
                        hint="Point it to 'geneva_drive.Workflow'; rows are loaded as instances of their class.",
                        obj=field,
                        id="geneva_drive.E004",
                    )
                )
    return found


@register(Tags.models)
def check_heroes(**_kwargs: Any) -> list[CheckMessage]:
    """Refuse hero models that are not installed, before a start looks them up."""
    found: list[CheckMessage] = []
    for cls in registry.all():
        try:
            cls._geneva.resolve_hero_model()
        except GenevaDriveError as error:
            found.append(Error(str(error), obj=cls, id="geneva_drive.E009"))
    return found


@register(Tags.database)
def check_columns(databases: Sequence[str] | None = None, **_kwargs: Any) -> list[CheckMessage]:
    """Compare the real columns with the settings and the current models."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        if router.allow_migrate_model(alias, Workflow):
            if columns.real_hero_column(connections[alias]) is None:
                found.extend(_advice_on_key_type(alias))
            else:
                found.extend(_key_type(alias))
                found.extend(_hero_key(alias))
    return found


def _advice_on_key_type(alias: str) -> Iterator[CheckMessage]:
    if "KEY_TYPE" in (getattr(django_settings, "GENEVA_DRIVE", None) or {}):
        return
    count = columns.count_hero_keys(alias)
    if count.decision == "uuid":
        yield Info(
            f"Most models of this project have UUID keys ({count.uuids}, against {count.integers} with integers "
            f"and {count.strings} with text), and the tables of geneva_drive would have big integers.",
            hint=(
                "Before the first migrate, set GENEVA_DRIVE['KEY_TYPE'] to 'uuid' to follow the project, or to "
                "'bigint' to confirm integers. Changing it later needs a migration of your own."
            ),
            id="geneva_drive.I008",
        )


def _key_type(alias: str) -> Iterator[CheckMessage]:
    connection = connections[alias]
    kind = columns.key_kind(connection, Workflow._meta.db_table, Workflow._meta.pk.attname)
    if kind is not None and kind != settings.KEY_TYPE:
        yield Error(
            f"GENEVA_DRIVE['KEY_TYPE'] is {settings.KEY_TYPE!r}, and the keys of {Workflow._meta.db_table} in the "
            f"database {alias!r} are {kind}.",
            hint=f"Set it to {kind!r}. It only affects new tables.",
            id="geneva_drive.E005",
        )


def _hero_key(alias: str) -> Iterator[CheckMessage]:
    kind = columns.hero_key_kind(alias)
    decision = columns.declared_kind(alias) if settings.HERO_KEY_TYPE in CHOICES["HERO_KEY_TYPE"] else kind
    if kind != decision:
        origin = "the current models" if settings.HERO_KEY_TYPE == "auto" else "GENEVA_DRIVE['HERO_KEY_TYPE']"
        yield Warning(
            f"The hero key column in the database {alias!r} is {kind}, and {origin} would make it {decision}.",
            hint=(
                "`manage.py geneva_hero_key` shows why, and with --to converts the column. To keep the column, set "
                f"GENEVA_DRIVE['HERO_KEY_TYPE'] = {kind!r}."
            ),
            id="geneva_drive.W006",
        )
    if kind == "string":
        return  # holds all keys
    for model in apps.get_models():
        if not any(isinstance(field, WorkflowRelation) for field in model._meta.private_fields):
            continue
        family = columns.field_family(model._meta.pk, connections[alias])
        if family != columns.FAMILY_OF_KIND[kind] and router.allow_migrate_model(alias, model):
            yield Warning(
                f"{model._meta.label} has workflows, and its keys ({family or 'of another type'}) do not fit the "
                f"hero key column in the database {alias!r}, which is {kind}.",
                hint="Starting them fails. `manage.py geneva_hero_key --to string` converts it to hold all keys.",
                obj=model,
                id="geneva_drive.W007",
            )


@register()
def check_dispatcher(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """Check that the dispatcher can be used, and run its own checks."""
    if app_configs is not None and not any(each.label == "geneva_drive" for each in app_configs):
        return []
    try:
        dispatcher = dispatch.configured_dispatcher()
    except DispatcherError as error:
        return [Error(str(error), id="geneva_drive.E070")]
    return list(dispatcher.check())

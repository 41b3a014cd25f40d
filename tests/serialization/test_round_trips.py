"""Values as JSON and back."""

from __future__ import annotations

import copy
import enum
import json
import math
import pickle
import uuid
from collections import OrderedDict, defaultdict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st

from geneva_drive.exceptions import PayloadError, PayloadTooLargeError
from geneva_drive.serialization import (
    MAX_DEPTH,
    MAX_KEY_BYTES,
    ModelReference,
    Unreadable,
    decode,
    dumps,
    encode,
    loads,
)

AMSTERDAM = ZoneInfo("Europe/Amsterdam")
TWICE = datetime(2024, 10, 27, 2, 30)  # the hour that comes twice
NEVER = datetime(2024, 3, 31, 2, 30)  # the hour that does not come

# What PostgreSQL cannot hold is refused, and tested by itself.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
KEYS = TEXTS | st.sampled_from(["$uuid", "$dict", "$datetime", "$model", "$nonsense", "$"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.binary()
    | st.uuids()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.datetimes()
    | st.datetimes(timezones=st.sampled_from([UTC, AMSTERDAM, timezone(timedelta(hours=-3, minutes=-30))]))
    | st.decimals(allow_nan=False, allow_infinity=False)
)
HASHABLE = st.recursive(SCALARS, lambda items: st.lists(items, max_size=4).map(tuple), max_leaves=5)
VALUES = st.recursive(
    SCALARS,
    lambda items: (
        st.lists(items, max_size=4)
        | st.lists(items, max_size=4).map(tuple)
        | st.sets(HASHABLE, max_size=4)
        | st.dictionaries(KEYS, items, max_size=4)
    ),
    max_leaves=15,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down: 1, 1.0 and True are not the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, set):
        return one == other and sorted(map(str, map(type, one))) == sorted(map(str, map(type, other)))
    if isinstance(one, float):
        return repr(one) == repr(other)
    return bool(one == other)


@given(VALUES)
def test_what_is_written_comes_back(value: Any) -> None:
    text = dumps(value)

    assert text.isascii()
    assert same(loads(text), value)
    # Saving what was read changes nothing.
    assert dumps(loads(text)) == text


@given(VALUES)
def test_one_value_is_always_the_same_text(value: Any) -> None:
    assert dumps(copy.deepcopy(value)) == dumps(value)


@given(st.recursive(SCALARS, lambda items: st.lists(items) | st.dictionaries(KEYS, items), max_leaves=10))
def test_reading_any_json_never_raises(value: Any) -> None:
    stored = json.dumps(value, default=str)

    once = dumps(loads(stored))

    assert dumps(loads(once)) == once


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize("naive", [TWICE, NEVER])
def test_the_hours_of_a_clock_change_stay_two(naive: datetime, fold: int) -> None:
    aware = naive.replace(tzinfo=AMSTERDAM, fold=fold)
    naive = naive.replace(fold=fold)

    for value in (aware, naive, naive.timetz()):
        back = loads(dumps(value))
        assert back == value
        assert back.fold == fold
    # Python finds a time in such an hour equal to none in another zone, so the zone must come back.
    assert loads(dumps(aware)).tzinfo is aware.tzinfo


def test_a_zone_that_this_host_does_not_know_leaves_the_moment() -> None:
    back = decode({"$datetime": "2024-10-27T02:30:00+02:00[Mars/Olympus]"})
    assert back == datetime(2024, 10, 27, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        None, {}, [], "", 0, 0.0, -0.0, False, True, 1, 1.0, 2**63 - 1, -(2**63), 1e22, 5e-324, 1.7976931348623157e308,
        0.1 + 0.2, "😀", "\x01\x7f\u2028", b"\0\xff", Decimal("1.50"), Decimal("-0"), Decimal("1E+400"),
        (), set(), (1, (2, [3])), {(1, 2), "a", None}, timedelta.max, timedelta.min, timedelta(microseconds=-1),
        date.min, datetime.max, time.max, time(12, 30, tzinfo=UTC), {"$uuid": "x"}, {"$dict": {"$dict": 1}},
        {"$a": 1, "b": 2}, {"": {"$": None}},
    ],
    ids=repr,
)  # fmt: skip
def test_notable_values(value: Any) -> None:
    assert same(loads(dumps(value)), value)


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


def test_subclasses_come_back_as_the_plain_type() -> None:
    values = [Colour.RED, Level.HIGH, mark_safe("<b>"), OrderedDict(a=1), defaultdict(list, a=[1])]

    assert same(loads(dumps(values)), ["red", 3, "<b>", {"a": 1}, {"a": [1]}])


Point = namedtuple("Point", ["x", "y"])


class Plain(enum.Enum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"a": [1, float("nan")]}, "payload['a'][1]", "nan"),
        ([float("inf")], "payload[0]", "inf"),
        (-math.inf, "payload", "inf"),
        ({"a": {"b": Decimal("NaN")}}, "payload['a']['b']", "NaN"),
        ([Decimal("Infinity")], "payload[0]", "Infinity"),
        ({1: 2}, "payload", "1"),
        ({"a": {None: 2}}, "payload['a']", "None"),
        ({"a": {(1,): 2}}, "payload['a']", "not a string"),
        ([{"a": "x\0y"}], "payload[0]['a']", "NUL"),
        ({"x\0": 1}, "payload", "NUL"),
        (("\ud800",), "payload[0]", "surrogate"),
        ({"a": {"\udfff": 1}}, "payload['a']", "surrogate"),
        ([2**63], "payload[0]", "64 bits"),
        ({"a": (1, -(2**63) - 1)}, "payload['a'][1]", "64 bits"),
        ({"a": object()}, "payload['a']", "object"),
        ([frozenset()], "payload[0]", "frozenset"),
        ([1j], "payload[0]", "complex"),
        ([bytearray(b"x")], "payload[0]", "bytearray"),
        ([Plain.ONE], "payload[0]", "Plain"),
        ([Point(1, 2)], "payload[0]", "_asdict"),
        ([gettext_lazy("Yes")], "payload[0]", "proxy"),
        ([Group], "payload[0]", "ModelBase"),
        ([Group(name="unsaved")], "payload[0]", "not saved"),
        ([Group(pk=7)], "payload[0]", "not saved"),
        ({"a": {float("nan")}}, "payload['a'][nan]", "nan"),
        ({"k" * (MAX_KEY_BYTES + 1): 1}, "payload", str(MAX_KEY_BYTES)),
        ({"é" * MAX_KEY_BYTES: 1}, "payload", str(MAX_KEY_BYTES)),
        ([len], "payload[0]", "builtin"),
    ],
    # Not the address, which is another one in each process.
    ids=lambda value: repr(value)[:40].partition(" at 0x")[0],
)  # fmt: skip
def test_what_no_database_gives_back_is_refused_with_its_path(value: Any, path: str, reason: str) -> None:
    with pytest.raises(PayloadError) as caught:
        dumps(value, what="payload")

    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)


def nested(levels: int, make: Any) -> Any:
    value: Any = 1
    for _ in range(levels - 1):
        value = make(value)
    return value


@pytest.mark.parametrize("make", [lambda value: [value], lambda value: {"a": value}], ids=["lists", "dicts"])
def test_depth_is_bounded_alike_everywhere(make: Any) -> None:
    deepest = nested(MAX_DEPTH, make)
    assert loads(dumps(deepest)) == deepest

    with pytest.raises(PayloadError, match="levels"):
        dumps(nested(MAX_DEPTH + 1, make))


@pytest.mark.parametrize(
    "make", [lambda value: (value,), lambda value: {"$uuid": value}], ids=["tuples", "dicts like tags"]
)
def test_depth_counts_what_is_stored(make: Any) -> None:
    value = nested(MAX_DEPTH // 2, make)
    assert loads(dumps(value)) == value

    with pytest.raises(PayloadError, match="levels"):
        dumps(nested(MAX_DEPTH // 2 + 1, make))


def test_a_value_inside_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(PayloadError, match="levels"):
        dumps(value)


def test_the_limit_is_of_stored_bytes() -> None:
    assert dumps("x" * 98, limit=100) == '"' + "x" * 98 + '"'
    with pytest.raises(PayloadTooLargeError, match=r"payload takes 101 bytes as JSON, and at most 100"):
        dumps("x" * 99, limit=100, what="payload")
    with pytest.raises(PayloadTooLargeError):
        dumps("😀" * 9, limit=100)
    assert dumps("x" * 99, limit=None)


class TestUnreadable:
    """A value that this code cannot read harms who uses it, not who reads the row."""

    @pytest.mark.parametrize(
        "stored",
        [
            '{"$fraction":"1/2"}',
            '{"$decimal":"1,5"}',
            '{"$datetime":"yesterday"}',
            '{"$datetime":"2024-01-01[x"}',
            '{"$timedelta":[1]}',
            '{"$uuid":7}',
            '{"$bytes":"*"}',
            '{"$set":[[1]]}',
            '{"$tuple":3}',
            '{"$dict":[]}',
            '{"$model":7}',
            '{"$float":"much"}',
        ],
    )
    def test_raises_when_used_and_is_written_back_as_it_was(self, stored: str) -> None:
        inside = loads(f'{{"a":[{stored}]}}')

        assert isinstance(inside["a"][0], Unreadable)
        for use in (bool, len, iter, int, lambda value: value.amount, lambda value: value["a"]):
            with pytest.raises((PayloadError, TypeError)):
                use(inside["a"][0])
        assert dumps(inside) == f'{{"a":[{stored}]}}'
        with pytest.raises(PayloadError):
            loads(stored, strict=True)

    @pytest.mark.parametrize("stored", ["", "{'a': 1}", "None", '{"a":', "[" * 100_000])
    def test_text_that_is_no_json(self, stored: str) -> None:
        value = loads(stored)

        assert isinstance(value, Unreadable)
        assert value.raw == stored
        with pytest.raises(PayloadError, match="not JSON"):
            bool(value)
        with pytest.raises(PayloadError):
            loads(stored, strict=True)

    def test_is_copied_pickled_and_compared(self) -> None:
        value = loads('{"$fraction":"1/2"}')

        assert copy.deepcopy(value) == value == pickle.loads(pickle.dumps(value))
        assert value != loads('{"$fraction":"1/3"}')
        assert "$fraction" in repr(value)


class TestModelInstances:
    @pytest.mark.django_db
    def test_come_back_equal_and_are_fetched_when_used(self, django_assert_num_queries: Any) -> None:
        group = Group.objects.create(name="editors")
        text = dumps({"group": group, "set": {group}})
        assert json.loads(text)["group"] == {"$model": ["auth.group", group.pk]}

        with django_assert_num_queries(0):
            back = loads(text)
            assert dumps(back) == text
            assert repr(back["group"]) == f"<ModelReference: auth.group {group.pk}>"
        with django_assert_num_queries(1):
            assert back["group"].name == "editors"
            assert back["group"] == group
        assert group == back["group"]
        assert isinstance(back["group"], Group)
        assert group in back["set"]
        assert Group.objects.get(pk=back["group"].pk) == group

    @pytest.mark.django_db
    def test_a_row_that_is_gone_is_met_by_its_user(self) -> None:
        group = Group.objects.create(name="editors")
        text = dumps([group])
        group.delete()

        back = loads(text)

        assert dumps(back) == text
        with pytest.raises(Group.DoesNotExist):
            _ = back[0].name

    def test_a_model_that_is_gone_too(self) -> None:
        back = loads('{"$model":["gone.parcel",7]}')

        assert isinstance(back, ModelReference)
        assert dumps(back) == '{"$model":["gone.parcel",7]}'
        with pytest.raises(LookupError):
            _ = back.name

    @pytest.mark.django_db
    def test_lazy_instances_such_as_the_user_of_a_request(self) -> None:
        group = Group.objects.create(name="editors")

        assert loads(dumps(SimpleLazyObject(lambda: group))) == group

    @pytest.mark.django_db(databases=["default", "other"])
    def test_remember_a_database_that_no_router_would_name(self) -> None:
        group = Group.objects.using("other").create(name="elsewhere")

        back = loads(dumps(group))

        assert encode(group) == {"$model": ["auth.group", group.pk, "other"]}
        assert (back.name, back._state.db) == ("elsewhere", "other")

    @pytest.mark.django_db
    def test_copies_and_pickles_stay_unfetched(self, django_assert_num_queries: Any) -> None:
        group = Group.objects.create(name="editors")
        back = loads(dumps(group))

        with django_assert_num_queries(0):
            others = [copy.copy(back), copy.deepcopy(back), pickle.loads(pickle.dumps(back))]
            assert [dumps(other) for other in others] == [dumps(group)] * 3
        assert [other.name for other in others] == ["editors"] * 3

    def test_keys_of_other_types(self) -> None:
        key = uuid.uuid4()
        assert loads(json.dumps({"$model": ["testapp.ticket", {"$uuid": str(key)}]})).__dict__["_stored"] == (
            "testapp.ticket",
            key,
            None,
        )

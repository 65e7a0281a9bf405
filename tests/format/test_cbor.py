"""The CBOR profile: every value has one encoding and is restored exactly, and other values are refused by path."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from naming import named

from statelog import kernels
from statelog.errors import CorruptionError, LimitError, UsageError, ValueTypeError
from statelog.format import cbor
from statelog.limits import DEPTH_MAX, INTEGER_BITS_MAX, KEY_SIZE_BYTES_MAX
from statelog.testing import identical, large_values, values

NAIVE = datetime(2024, 2, 29, 12, 30, 15, 250)  # noqa: DTZ001 - a time without a zone

VECTORS = [
    (None, "f6"),
    (False, "f4"),
    (True, "f5"),
    (0, "00"),
    (23, "17"),
    (24, "1818"),
    (255, "18ff"),
    (256, "190100"),
    (65_535, "19ffff"),
    (65_536, "1a00010000"),
    (2**32, "1b0000000100000000"),
    (2**64 - 1, "1bffffffffffffffff"),
    (2**64, "c249010000000000000000"),
    (-1, "20"),
    (-24, "37"),
    (-25, "3818"),
    (-(2**64), "3bffffffffffffffff"),
    (-(2**64) - 1, "c349010000000000000000"),
    (0.0, "f90000"),
    (-0.0, "f98000"),
    (1.0, "f93c00"),
    (65504.0, "f97bff"),
    (65505.0, "fa477fe100"),
    (1.1, "fb3ff199999999999a"),
    (5.960464477539063e-08, "f90001"),
    (3.4028234663852886e38, "fa7f7fffff"),
    (1e300, "fb7e37e43c8800759c"),
    (math.inf, "f97c00"),
    (-math.inf, "f9fc00"),
    (math.nan, "f97e00"),
    (-math.nan, "f97e00"),
    ("", "60"),
    ("a", "6161"),
    ("é", "62c3a9"),
    ("𝄞", "64f09d849e"),
    ("x" * 24, "7818" + "78" * 24),
    (b"", "40"),
    (b"\x01\x02", "420102"),
    ([], "80"),
    ([1, [2]], "82018102"),
    (list(range(24)), "9818" + bytes(range(24)).hex()),
    ({}, "a0"),
    ({"b": 1, "a": 2}, "a2616102616201"),
    # RFC 8949 orders keys by their encoded bytes: shorter ones first, then bytewise.
    ({"aa": 1, "b": 2, "": 3}, "a3600361620262616101"),
    ((), "d9c86480"),
    ((1, "a"), "d9c86482016161"),
    (set(), "d9010280"),
    ({2, 1, "a"}, "d9010283010261" + "61"),
    (frozenset({1}), "d9c8658101"),
    (NAIVE, "d9c866781a323032342d30322d32395431323a33303a31352e303030323530"),
    (datetime(2024, 1, 1, tzinfo=UTC), "d9c8667819323032342d30312d30315430303a30303a30302b30303a3030"),
    (UUID(int=0x0102030405060708090A0B0C0D0E0F10), "d825500102030405060708090a0b0c0d0e0f10"),
    (Decimal("1.10"), "d9c86764312e3130"),
    (Decimal("-0E+3"), "d9c867652d30452b33"),
]


@pytest.mark.parametrize(("value", "data"), VECTORS, ids=named)
def test_encodings_are_pinned(value, data):
    assert cbor.encode(value).hex() == data
    assert identical(cbor.decode(bytes.fromhex(data)), value)
    kernels.cbor_check(bytes.fromhex(data))


@pytest.mark.slow
@given(values() | large_values())
def test_every_value_is_restored_exactly_and_conforms_to_the_profile(value):
    data = cbor.encode(value)
    kernels.cbor_check(data)
    decoded = cbor.decode(data)
    assert identical(decoded, value)
    assert cbor.encode(decoded) == data
    assert cbor.decode(memoryview(data)) is not None or value is None


@given(st.dictionaries(st.text(), st.integers(), min_size=1), st.randoms(use_true_random=False))
def test_the_order_of_insertion_leaves_no_trace(value, rng):
    pairs = list(value.items())
    rng.shuffle(pairs)
    assert cbor.encode(dict(pairs)) == cbor.encode(value)


@given(st.sets(st.integers() | st.text() | st.tuples(st.integers())))
def test_the_order_of_a_set_leaves_no_trace(value):
    backwards = set()
    for element in sorted(value, key=repr, reverse=True):
        backwards.add(element)
    assert cbor.encode(value) == cbor.encode(backwards)


@pytest.mark.slow
@given(values(), values())
def test_different_values_have_different_encodings(first, second):
    assert (cbor.encode(first) == cbor.encode(second)) == identical(first, second)


def test_an_unsigned_is_the_int_it_is():
    for number in (0, 23, 24, 1023, 1024, 2**32, 2**64 - 1):
        assert cbor.encode_unsigned(number) == cbor.encode(number)


# --- what is refused --------------------------------------------------------------


class Color(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


Point = namedtuple("Point", "x y")  # noqa: PYI024
CYCLE = []
CYCLE.append(CYCLE)
KEYED_CYCLE = {}
KEYED_CYCLE["again"] = [KEYED_CYCLE]


@pytest.mark.parametrize(
    ("value", "path", "name"),
    [
        (object(), "value", "object"),
        ([1, {"x": object()}], "value[1].x", "object"),
        ({"messages": [0, 0, 0, {"x": range(3)}]}, "value.messages[3].x", "range"),
        (({1: {2}, 3: object()},), "value[0][3]", "object"),
        ({"a": {math.nan: 1}}, "value.a", "float"),
        ([Color.RED], "value[0]", f"{__name__}.Color"),
        (Level.LOW, "value", f"{__name__}.Level"),
        (Text("x"), "value", f"{__name__}.Text"),
        ({Text("x"): 1}, None, f"{__name__}.Text"),
        (Point(1, 2), "value", f"{__name__}.Point"),
        (OrderedDict(a=1), "value", "collections.OrderedDict"),
        (memoryview(b"x"), "value", "memoryview"),
        (range(3), "value", "range"),
        ("\ud800", "value", "str"),
        ({"\udfff": 1}, "value key", "str"),
        (["ok", "a\ud800"], "value[1]", "str"),
        ({math.nan}, "value", "float"),
        ([{1, (2, object())}], None, "object"),
        ({Decimal("NaN"), Decimal("NaN")}, "value", "decimal.Decimal"),
        ({(1, math.nan)}, "value", "tuple"),
        ({frozenset({(math.nan,)})}, None, "frozenset"),
        (NAIVE.replace(fold=1), "value", "datetime.datetime"),
        (datetime(2024, 1, 1, tzinfo=timezone(timedelta(microseconds=1))), "value", "datetime.datetime"),
        (lambda: None, "value", "function"),
        (int, "value", "type"),
    ],
    ids=named,
)
def test_values_that_cannot_be_stored_are_refused_by_path_and_type(value, path, name):
    with pytest.raises(ValueTypeError) as caught:
        cbor.encode(value)
    assert caught.value.type == name
    if path is not None:
        assert caught.value.path == path
        assert path in str(caught.value)
    assert name in str(caught.value)


def test_the_path_begins_as_the_caller_says():
    with pytest.raises(ValueTypeError, match=r"state\.messages\[3\]: cannot store object"):
        cbor.encode([1, 2, 3, object()], path="state.messages")


def test_the_error_for_a_subclass_names_the_type_to_convert_to():
    with pytest.raises(ValueTypeError, match="convert it to dict"):
        cbor.encode(OrderedDict(a=1))


def nested(depth, wrap):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS = [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: frozenset({v})]


@pytest.mark.parametrize("wrap", WRAPS, ids=["list", "tuple", "dict", "frozenset"])
def test_depth_is_bounded(wrap):
    deepest = nested(DEPTH_MAX, wrap)
    data = cbor.encode(deepest)
    kernels.cbor_check(data)
    assert identical(cbor.decode(data), deepest)
    for depth in (DEPTH_MAX + 1, 5000):
        with pytest.raises(LimitError, match="nested deeper than 128") as caught:
            cbor.encode(nested(depth, wrap) if depth < 500 or wrap is not WRAPS[3] else nested(129, wrap))
        assert caught.value.limit == DEPTH_MAX
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("cycle", [CYCLE, KEYED_CYCLE], ids=["list", "dict"])
def test_a_cycle_is_refused_as_too_deep(cycle):
    with pytest.raises(LimitError, match="cycle"):
        cbor.encode(cycle)


def test_integers_are_bounded():
    largest = 2**INTEGER_BITS_MAX - 1
    assert cbor.decode(cbor.encode(-largest)) == -largest
    with pytest.raises(LimitError) as caught:
        cbor.encode({"n": [largest + 1]})
    assert (caught.value.path, caught.value.limit, caught.value.actual) == (
        "value.n[0]",
        INTEGER_BITS_MAX,
        INTEGER_BITS_MAX + 1,
    )


def test_keys_and_elements_are_bounded():
    longest = "k" * (KEY_SIZE_BYTES_MAX - 3)
    assert cbor.decode(cbor.encode({longest: 1})) == {longest: 1}
    assert cbor.decode(cbor.encode({longest})) == {longest}
    for value in ({longest + "k": 1}, {longest + "k"}, frozenset({("x", longest)})):
        with pytest.raises(LimitError) as caught:
            cbor.encode(value)
        assert caught.value.limit == KEY_SIZE_BYTES_MAX


def test_a_value_is_bounded(monkeypatch):
    monkeypatch.setattr(cbor, "VALUE_SIZE_BYTES_MAX", 1000)
    assert cbor.encode("x" * 997)
    with pytest.raises(LimitError) as caught:
        cbor.encode("x" * 998, path="c")
    assert (caught.value.path, caught.value.limit, caught.value.actual) == ("c", 1000, 1001)


def test_a_named_zone_is_restored_as_its_offset():
    moment = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    decoded = cbor.decode(cbor.encode(moment))
    assert decoded == moment
    assert decoded.utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize("data", ["", "ff", "61ff", "d9c867624e6f", "d9c866626e6f", "82", "1c", "d8256100"])
def test_bytes_that_are_not_a_value_are_damage(data):
    with pytest.raises(CorruptionError):
        cbor.decode(bytes.fromhex(data))


class TimeLimit(Exception):  # noqa: N818 - named as applications do
    pass


class TimeLimitOfValue(ValueError):  # noqa: N818
    pass


@pytest.mark.parametrize("error", [TimeoutError, TimeLimit, TimeLimitOfValue, KeyboardInterrupt, KeyError, MemoryError])
@pytest.mark.parametrize("where", ["decoder", "around"])
def test_an_exception_of_a_signal_handler_in_a_decoder_is_not_damage(error, where, monkeypatch):
    """cbor2 wraps every exception in a decoder, even an interrupt."""
    raised = error("of the application")

    def interrupted(*_args, **_options):
        raise raised

    data = cbor.encode([(1, 2)])
    if where == "decoder":
        monkeypatch.setitem(cbor._DECODERS, cbor.TAG_TUPLE, interrupted)
    else:
        monkeypatch.setattr("cbor2.loads", interrupted)
    with pytest.raises(error) as caught:
        cbor.decode(data)
    assert caught.value is raised


# --- codecs -----------------------------------------------------------------------


class Money:
    def __init__(self, amount, currency):
        self.amount, self.currency = amount, currency

    def __eq__(self, other):
        return (self.amount, self.currency) == (other.amount, other.currency)

    def __hash__(self):
        return hash((self.amount, self.currency))


class Other:
    pass


def encode_money(money):
    return [money.amount, money.currency]


def decode_money(payload):
    return Money(*payload)


@pytest.fixture
def codecs(monkeypatch):
    """Let what a test registers be forgotten."""
    monkeypatch.setattr(cbor, "_codecs_by_type", {})
    monkeypatch.setattr(cbor, "_codecs_by_name", {})


@pytest.fixture
def money(codecs):  # noqa: ARG001 - it must have taken place
    cbor.register_codec(Money, name="money", encode=encode_money, decode=decode_money)


@pytest.mark.usefixtures("money")
def test_a_registered_type_is_restored():
    value = {"price": [Money(5, "EUR")], "seen": {Money(1, "USD")}}
    data = cbor.encode(value)
    kernels.cbor_check(data)
    assert cbor.decode(data) == value
    assert type(cbor.decode(cbor.encode(Money([1, (2,)], None))).amount) is list
    assert cbor.encode(Money(1, "a")).hex() == "d81b82656d6f6e657982016161"


@pytest.mark.usefixtures("money")
def test_an_invalid_result_of_a_codec_is_refused_by_path():
    with pytest.raises(ValueTypeError) as caught:
        cbor.encode([Money(1, object())])
    assert caught.value.path == "value[0].<money>[1]"


@pytest.mark.usefixtures("money")
def test_a_codec_that_is_not_registered_is_named(monkeypatch):
    data = cbor.encode([Money(5, "EUR")])
    monkeypatch.setattr(cbor, "_codecs_by_name", {})
    with pytest.raises(UsageError, match="'money'") as caught:
        cbor.decode(data)
    assert caught.value.codec == "money"


@pytest.mark.usefixtures("codecs")
def test_a_codec_for_a_native_type_is_refused():
    with pytest.raises(UsageError, match="natively"):
        cbor.register_codec(int, name="int", encode=str, decode=int)


@pytest.mark.usefixtures("money")
def test_a_name_or_type_is_given_once():
    cbor.register_codec(Money, name="money", encode=encode_money, decode=decode_money)  # again: harmless
    for kind, name in ((Other, "money"), (Money, "cash")):
        with pytest.raises(UsageError, match="already registered"):
            cbor.register_codec(kind, name=name, encode=encode_money, decode=decode_money)


@pytest.mark.usefixtures("codecs")
def test_a_value_that_changes_while_it_is_encoded_is_a_usage_error():
    class Fickle:
        calls = 0

    def encode(value):
        value.calls += 1
        return object() if value.calls == 1 else 1

    cbor.register_codec(Fickle, name="fickle", encode=encode, decode=decode_money)
    with pytest.raises(UsageError, match="changed while"):
        cbor.encode(Fickle())

"""Codecs of users: how deep they nest, cycles through them, and what becomes of those that fail."""

import cbor2
import pytest

from statelog.errors import CorruptionError, LimitError, UsageError
from statelog.format import cbor
from statelog.limits import DEPTH_MAX


class Money:
    def __init__(self, amount, currency):
        self.amount, self.currency = amount, currency


def encode_money(money):
    return [money.amount, money.currency]


def decode_money(payload):
    return Money(*payload)


@pytest.fixture
def codecs(monkeypatch):
    """Let what a test registers be forgotten."""
    monkeypatch.setattr(cbor, "_codecs_by_type", {})
    monkeypatch.setattr(cbor, "_codecs_by_name", {})


def nested(depth, wrap):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS = [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: frozenset({v})]


class Broken(Exception):  # noqa: N818 - of a user
    pass


FAILURES = [
    TypeError("t"),
    ValueError("v"),
    KeyError("k"),
    AttributeError("a"),
    StopIteration("s"),
    RecursionError("r"),
    MemoryError("m"),
    OverflowError("o"),
    ZeroDivisionError("z"),
    ImportError("i"),
    OSError("e"),
    AssertionError(),
    UnicodeDecodeError("utf-8", b"", 0, 1, "u"),
    cbor2.CBORDecodeError("c"),
    Broken("b"),
    CorruptionError("c"),
]


@pytest.mark.usefixtures("codecs")
@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
def test_a_decoder_of_the_user_that_fails_is_named_and_is_not_damage(failure):
    def fail(_payload):
        raise failure

    cbor.register_codec(Money, name="money", encode=encode_money, decode=fail)
    for value in (Money(1, "EUR"), [{"a": (Money(1, "EUR"),)}], {Money(1, "EUR")}, {Money(1, "EUR"): 1}):
        for is_loose in (False, True):
            with pytest.raises(UsageError, match="'money'") as caught:
                cbor.decode(cbor.encode(value), loosely=is_loose)
            assert type(failure).__name__ in str(caught.value)
            assert caught.value.codec == "money"
            assert caught.value.__cause__ is failure


@pytest.mark.usefixtures("codecs")
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt("k"), SystemExit(3), GeneratorExit()], ids=repr)
def test_an_interrupt_in_a_decoder_comes_as_it_is(interrupt):
    def fail(_payload):
        raise interrupt

    cbor.register_codec(Money, name="money", encode=encode_money, decode=fail)
    with pytest.raises(type(interrupt)) as caught:
        cbor.decode(cbor.encode([Money(1, "EUR")]))
    assert caught.value is interrupt


@pytest.mark.usefixtures("codecs")
def test_the_causes_of_an_error_in_a_decoder_lead_round_in_no_circle():
    def fail(_payload):
        raise KeyError("k")

    cbor.register_codec(Money, name="money", encode=encode_money, decode=fail)
    with pytest.raises(UsageError) as caught:
        cbor.decode(cbor.encode([Money(1, "EUR")]))
    seen, pending = [], [caught.value]
    while pending:
        error = pending.pop()
        assert error not in seen
        seen.append(error)
        pending += [each for each in {error.__cause__, error.__context__} if each is not None]


class Box:
    def __init__(self, inside):
        self.inside = inside


@pytest.fixture
def box(codecs):  # noqa: ARG001 - it must have taken place
    cbor.register_codec(Box, name="box", encode=lambda box: box.inside, decode=Box)


BOXES = [Box, lambda v: Box([v]), lambda v: Box({"k": v}), lambda v: {1: v}, lambda v: Box((v,))]
LEVELS = [1, 2, 2, 2, 2]


@pytest.mark.slow
@pytest.mark.usefixtures("box")
@pytest.mark.parametrize(("wrap", "levels"), [*zip(BOXES, LEVELS, strict=True)], ids=range(len(BOXES)))
def test_depth_is_bounded_through_codecs(wrap, levels):
    deepest = DEPTH_MAX // levels
    cbor.decode(cbor.encode(nested(deepest, wrap)))
    for depth in (deepest + 1, deepest + 2, 500, 5000):
        with pytest.raises(LimitError, match="nested deeper than 128") as caught:
            cbor.encode(nested(depth, wrap))
        assert (caught.value.limit, caught.value.actual) == (DEPTH_MAX, DEPTH_MAX + 1)
        assert len(str(caught.value)) < 200


@pytest.mark.usefixtures("box")
@pytest.mark.parametrize("around", [lambda v: v, lambda v: [v], lambda v: {"a": v}, lambda v: {1: v}], ids=range(4))
def test_a_cycle_through_a_codec_is_a_limit_error(around):
    box = Box(None)
    box.inside = around(box)
    with pytest.raises(LimitError, match="or part of a cycle"):
        cbor.encode({"x": box})


@pytest.mark.usefixtures("codecs")
def test_an_encoder_of_the_user_that_goes_round_a_cycle_is_a_limit_error():
    def encode(money):
        return [money.amount, encode(money.currency)]

    money = Money(1, None)
    money.currency = money
    cbor.register_codec(Money, name="money", encode=encode, decode=decode_money)
    with pytest.raises(LimitError, match="'money'") as caught:
        cbor.encode({"x": [money]})
    assert caught.value.path == "value.x[0]"


@pytest.mark.slow
@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 500, 3000])
def test_sets_within_sets_are_bounded_at_any_depth(depth):
    with pytest.raises(LimitError, match="nested deeper"):
        cbor.encode(nested(depth, lambda v: frozenset({v})))


@pytest.mark.parametrize("wrap", WRAPS, ids=["list", "tuple", "dict", "frozenset"])
def test_nested_values_have_less_depth_left(wrap):
    cbor.encode(nested(DEPTH_MAX - 3, wrap), depth=3)
    with pytest.raises(LimitError) as caught:
        cbor.encode(nested(DEPTH_MAX - 2, wrap), depth=3)
    assert caught.value.actual == DEPTH_MAX + 1

"""Everyday values: each is restored as the same value of the same class, or refused by name."""

import collections
import contextlib
import datetime as dt
import io
import ipaddress
import pathlib
import re
import subprocess
import sys
import tracemalloc
import zoneinfo
from decimal import Decimal
from fractions import Fraction

import cbor2
import numpy as np
import pydantic
import pytest

import statelog
from statelog.errors import CorruptionError, UsageError, ValueTypeError
from statelog.format import cbor, everyday
from statelog.format.unregistered import Unregistered
from statelog.kernels import cbor_check

UTC = dt.UTC

VALUES = [
    dt.date(2020, 2, 3),
    dt.date.min,
    dt.time(1, 2, 3, 4),
    dt.time(1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-3))),
    dt.timedelta(days=-3, microseconds=5),
    dt.timedelta.min,
    dt.timedelta.max,
    zoneinfo.ZoneInfo("Etc/UTC"),
    pathlib.Path("/a/b"),
    pathlib.PurePosixPath("a"),
    pathlib.PureWindowsPath("c:/x"),
    *map(ipaddress.ip_address, ("1.2.3.4", "fe80::1%eth0")),
    *map(ipaddress.ip_network, ("10.0.0.0/8", "::/7")),
    *map(ipaddress.ip_interface, ("10.0.0.1/8", "::1/7")),
    1 - 2j,
    complex("inf-0j"),
    Fraction(-(2**70), 3),
    re.compile("a.b", re.IGNORECASE),
    re.compile(b"a"),
    collections.deque([1, {"x": 2}], maxlen=5),
    bytearray(b"x"),
    pydantic.AnyUrl("s3://bucket/key"),
    pydantic.HttpUrl("https://a.b/?q=1"),
    pydantic.PostgresDsn("postgres://u:p@h:1,g:2/db"),
    np.bool_(True),  # noqa: FBT003 - a value
    np.int8(-3),
    np.uint64(2**64 - 1),
    np.float16(1.5),
    np.complex64(1j),
    np.str_("h\xe9llo"),
    np.bytes_(b"x"),
    np.str_(""),
    np.bytes_(b""),
    np.str_("\ud800"),
    np.datetime64("2020-01-01T00:00:00.123", "ms"),
    np.timedelta64(3, "D"),
    {1: "a", "1": "b", (2, None): {"x": {3.5: []}}},
    {True: 1},
    {dt.date(2020, 1, 1): [dt.timedelta(1)]},
    {dt.date(2020, 1, 1), Fraction(1, 2), pathlib.Path("x")},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__module__}.{type(value).__name__}")
def test_an_everyday_value_is_restored_unchanged(value):
    item = cbor.encode([value, {"inside": value}])
    cbor_check(item)
    (back, inside) = cbor.decode(item)
    assert type(back) is type(value)
    assert back == value
    assert inside == {"inside": value}
    assert cbor.encode(back) == cbor.encode(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.zeros((0, 3), np.float32),
        np.array(5.0),
        np.array(["a", "bcd"]),
        np.array([True, False]),
        np.array(["2020-01-01"], "datetime64[D]"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_an_array_is_restored_with_dtype_and_shape_and_is_writable(array):
    back = cbor.decode(cbor.encode(array))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert np.array_equal(back, array)
    assert back.flags.writeable


@pytest.mark.parametrize(
    "other", [np.arange(6.0).reshape(2, 3).astype(">f8"), np.asfortranarray(np.arange(6.0).reshape(2, 3))]
)
def test_equal_arrays_have_equal_bytes_however_they_lie_in_memory(other):
    assert cbor.encode(other) == cbor.encode(np.arange(6.0).reshape(2, 3))


def test_equal_dicts_have_equal_bytes_whatever_their_order():
    assert cbor.encode({2: "b", "k": 1, 1: "a"}) == cbor.encode({1: "a", 2: "b", "k": 1})


def test_a_dict_with_only_str_keys_is_encoded_as_before():
    assert cbor.encode({"a": 1}) == b"\xa1\x61\x61\x01"


def test_an_everyday_value_is_tagged_as_the_format_says_of_codecs():
    """A release that does not know the name then refuses the value instead of misreading it."""
    assert cbor2.loads(cbor.encode(dt.date(2020, 2, 3)), tag_hook=lambda tag, _: (tag.tag, tag.value)) == (
        27,
        ("statelog/date", "2020-02-03"),
    )


class Own(dt.date):
    pass


class Model(pydantic.BaseModel):
    x: int = 0


@pytest.mark.parametrize(
    ("value", "name", "why"),
    [
        (Own(2020, 1, 1), f"{__name__}.Own", "register_codec"),
        (Model(), f"{__name__}.Model", "schema"),
        (pydantic.SecretStr("x"), "pydantic.types.SecretStr", "register_codec"),
        (np.array([object()]), "numpy.ndarray", "objects"),
        (np.zeros(1, [("a", int)]), "numpy.ndarray", "fields"),
        (dt.time(1, fold=1), "datetime.time", "fold"),
        (dt.time(1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")), "datetime.time", "no fixed offset"),
        (range(3), "range", "register_codec"),
    ],
)
def test_values_that_could_not_be_restored_are_refused_by_full_name(value, name, why):
    with pytest.raises(ValueTypeError, match=why) as caught:
        cbor.encode({"x": [value]})
    assert caught.value.type == name
    assert caught.value.path == "value.x[0]"
    assert f"cannot store {name}" in str(caught.value)


@pytest.mark.parametrize("key", [float("nan"), complex("nan"), (1, float("nan"))], ids=repr)
def test_a_key_that_equals_nothing_is_refused(key):
    with pytest.raises(ValueTypeError, match="as a key"):
        cbor.encode({key: 1})


def test_a_codec_of_the_user_goes_before_the_built_in_one(monkeypatch):
    monkeypatch.setattr(cbor, "_codecs_by_type", {})
    monkeypatch.setattr(cbor, "_codecs_by_name", {})
    built_in = cbor.encode(dt.date(2020, 2, 3))
    cbor.register_codec(dt.date, name="own-date", encode=lambda value: value.toordinal(), decode=dt.date.fromordinal)
    own = cbor.encode(dt.date(2020, 2, 3))
    assert own != built_in
    assert cbor.decode(own) == cbor.decode(built_in) == dt.date(2020, 2, 3)


def test_names_of_built_in_codecs_are_not_to_be_had():
    with pytest.raises(UsageError, match="statelog/"):
        cbor.register_codec(Own, name="statelog/own", encode=str, decode=str)


def test_a_value_of_a_package_that_is_missing_is_refused_by_the_name_of_the_package(monkeypatch):
    item = cbor.encode([np.int8(1)])
    monkeypatch.setitem(sys.modules, "numpy", None)
    everyday.codec_named.cache_clear()
    try:
        with pytest.raises(UsageError, match="numpy is not installed"):
            cbor.decode(item)
        assert cbor.decode(item, loosely=True) == [Unregistered("statelog/scalar", ["|i1", b"\x01"])]
    finally:
        everyday.codec_named.cache_clear()


@pytest.mark.slow
def test_no_optional_package_is_imported_for_values_that_come_from_none():
    program = (
        "import sys, datetime; from statelog.format import cbor; import statelog;"
        "cbor.decode(cbor.encode([datetime.date(2020, 1, 1), {1: 2}]));"
        "print([name for name in ('numpy', 'pydantic', 'pydantic_core') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- hostile payloads -----------------------------------------------

DEEP = "(" * 5000 + ")" * 5000
HOSTILE = {
    "date": [1, "Mars", "", b"2020-02-03", ["2020-02-03"], "2020-13-45"],
    "time": [1, "25:00", b"", None],
    "timedelta": [10**30, 1.5, float("inf"), float("nan"), "x", [1], b"x" * 9, True, None],
    "zone": [1, "../../etc/passwd", "/etc/passwd", "a\0b", ["UTC"], None, "\udfff".encode("utf-8", "replace").decode()],
    "complex": ["1", ["1", "2"], [1.0], [1.0, 2.0, 3.0], [[], []], None],
    "bytearray": [300_000_000, 2**40, -1, "x", [1, 2], None, [10**9]],
    "fraction": [[1, 0], ["1e999999999", 1], [Decimal("1E+999999999"), 1], [1.5, 2], [1], [], 5, [True, 1]],
    "pattern": [["(", 0], ["a", "b"], ["a", 2**70], [1, 0], ["a"], ["a{2,1}", 0], [DEEP, 0], ["a", -1], None],
    "quarantined": [[], ["r"], ["r", "c"], [1, "c", 2], ["r", 1, 2], ["r", "c", 1, 2], "rc1", 300_000_000, None],
    "deque": [[300_000_000, None], [[1], -1], [[1], "x"], ["abc", None], [[1], 2**70], [], None],
    "path": [1, b"a", ["a", "b"], None],
    "pure-path": [["PosixPath", "a"], ["PurePosixPath", 1], ["open", "a"], ["PurePosixPath"], "PurePosixPath", None],
    "address": [["IPv4Address", 1], ["IPv4Address", "1.2.3"], ["IPv4Network", "1.2.3.4/8"], ["x", "y"], [[], []], None],
    "url": [["AnyUrl", "no url"], ["AnyUrl", 1], ["BaseModel", "x"], ["HttpUrl", "s3://x"], None],
    "core-url": [["Url", "x"], ["Url", 1], ["from_json", "[]"], None],
    "pairs": [[1], [[], 1], "ab", 5, None, [{1: 2}, 3]],
    "array": [
        ["<U500000000", [0], b""],
        ["|V10", [1], b"0123456789"],
        ["|O", [1], b"01234567"],
        ["|O", [0], b""],
        ["(1000000000,)i4", [0], b""],
        ["i4,f8", [0], b""],
        ["<f8", [2], b"01234567"],
        ["<f8", [-1, 10**30], b"01234567"],
        ["<f8", ["x"], b"01234567"],
        ["<f8", [1], "01234567"],
        ["<f8", [1], [0] * 8],
        ["<f8", [0] * 100, b""],
        ["<f8", 1, b"01234567"],
        ["<m8[xyz]", [1], b"01234567"],
        [["f8"], [1], b"01234567"],
        ["<f8", [1]],
        ["<U1", [1], b"\xff" * 4],
        [">U1", [1], b"\xff" * 4],
        ["<U2", [2], b"x\0\0\0" * 3 + b"\0\0\x11\0"],
        None,
    ],
    "scalar": [
        ["<f8", b""],
        ["<f8", b"012"],
        ["|V3", b"012"],
        [1, b"x"],
        ["<f8", "x"],
        ["<U1", b"\xff" * 4],
        b"",
        None,
    ],
}
PAYLOADS = [(name, payload) for name, payloads in HOSTILE.items() for payload in payloads]


def coded(name, payload):
    """Return the item of a codec with any payload."""
    return b"\xd8\x1b\x82" + cbor.encode(f"statelog/{name}") + cbor.encode(payload)


def test_each_codec_is_tried_with_payloads_that_are_not_its_own():
    assert {f"statelog/{name}" for name in HOSTILE} == set(everyday._BY_NAME)


@pytest.mark.parametrize(("name", "payload"), PAYLOADS, ids=lambda each: f"{each!r:.40}")
def test_an_invalid_payload_is_an_error_with_its_name_and_allocates_no_memory(name, payload):
    for item in (coded(name, payload), b"\x81" + coded(name, payload)):
        cbor_check(item)
        cbor.decode(coded("date", "2020-02-03"))
        tracemalloc.start()
        try:
            for is_loose in (False, True):
                with pytest.raises((CorruptionError, UsageError)) as caught:
                    cbor.decode(item, loosely=is_loose)
                assert f"'statelog/{name}'" in str(caught.value) or type(caught.value) is UsageError
                assert caught.value.codec == f"statelog/{name}"
            assert tracemalloc.get_traced_memory()[1] < 8_000_000
        finally:
            tracemalloc.stop()


def test_a_zone_that_this_host_does_not_know_is_not_called_damage():
    for name in ("Mars/Base", "America"):  # the second is a folder of zones
        with pytest.raises(UsageError, match="tzdata") as caught:
            cbor.decode(coded("zone", name))
        assert name in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "payload"),
    [(Fraction(1, 2), [1, 0]), (bytearray(b"x"), 300_000_000), (zoneinfo.ZoneInfo("Etc/UTC"), "Mars/Base")],
    ids=["fraction", "bytearray", "zone"],
)
def test_an_export_with_a_hostile_payload_is_read_with_named_errors(value, payload, tmp_path, monkeypatch):
    name = f"{type(value).__module__}.{type(value).__name__}"
    stream = io.BytesIO()
    with statelog.open(tmp_path / "a.state") as store, monkeypatch.context() as patch:
        patch.setitem(everyday._CODECS, name, everyday._CODECS[name]._replace(encode=lambda _value: payload))
        everyday._codec_of.cache_clear()
        store.thread("t").commit({"v": value, "n": 1})
        with contextlib.suppress(CorruptionError, UsageError):  # the entry that is returned cannot be read
            store.board().set("k", value)
        store.export(stream)
    everyday._codec_of.cache_clear()
    stream.seek(0)
    with statelog.open(tmp_path / "b.state") as store:
        store.import_(stream)
        assert store.verify().ok
        for read in (
            lambda: store.thread("t").state["v"],
            store.thread("t").state.to_python,
            lambda: store.board().get("k"),
            lambda: store.board().list(),
        ):
            with pytest.raises((CorruptionError, UsageError)):
                read()
        assert "Error>" in repr(store.thread("t").state)
        assert store.thread("t").state["n"] == 1
        store.thread("t").commit({"v": value})  # what is wrong can be replaced
        assert store.thread("t").state["v"] == value
    cli = str(pathlib.Path(sys.executable).with_name("statelog"))
    done = subprocess.run([cli, "board", "ls", str(tmp_path / "b.state")], capture_output=True, text=True, check=False)
    assert done.returncode in (2, 7)
    assert "internal" not in done.stderr

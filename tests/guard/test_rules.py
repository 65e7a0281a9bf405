"""Rules find what they are for, and leave everything else as it is. They run in re2 itself."""

from __future__ import annotations

import collections
import json
import pathlib
import re
from random import Random

import pytest

pytest.importorskip("re2")

from statelog.bench.guard_texts import SECRETS, clean, planted
from statelog.errors import GuardError, SecretError, UsageError
from statelog.format import cbor
from statelog.guard import Guard, Secrets
from statelog.guard.matching import Pattern
from statelog.guard.rules import RULES, has_checksum, is_telling

KEY = bytes(32)
TOKEN = SECRETS["github-token"](Random(1))
SECRET = SECRETS["named-secret"](Random(2))


def redacted(value, guard=None, path="channel"):
    """Return a value as a store with a guard would have it."""
    redactor = (Guard() if guard is None else guard).redactor(KEY)
    made = cbor.decode(redactor.item(cbor.encode(value), path))
    assert redactor.item(cbor.encode(made), path) == cbor.encode(made)
    return made


def test_every_rule_has_a_planted_secret():
    assert {rule.name for rule in RULES} == SECRETS.keys() - {"named-secret"}


@pytest.mark.parametrize("rule", SECRETS)
def test_a_planted_secret_is_replaced_wherever_it_stands(rule):
    random, names = Random(rule), [*SECRETS]
    for turn in range(40):
        found = planted(random, names.index(rule) + turn * len(names))
        for value in (found.text, {"a": [found.text]}, (1, {found.text}), f"x{found.text}"[1:].encode()):
            text = repr(redacted(value))
            assert found.secret.split("\n")[-2 if "\n" in found.secret else 0] not in text, found
            assert f"[REDACTED {rule} " in text, found


def test_a_scan_finds_whatever_a_rule_finds():
    """The scan is another pattern than the rules: what it passes over, no rule is asked about."""
    random, secrets = Random(4), Secrets()
    for number in range(4000):
        found = planted(random, number)
        for encoded in (found.text.encode(), cbor.encode({"x": found.text}), cbor.encode([found.text])):
            assert secrets.may_be_in(encoded), found


def test_clean_texts_stay_as_they_are():
    random = Random(3)
    changed = [text for number in range(2000) if redacted(text := clean(random, number)) != text]
    assert changed == []


@pytest.mark.parametrize("size", [*range(18, 28), 255, 256, 300])
def test_a_token_is_found_behind_every_head_of_cbor(size):
    text = "AKIA" + "QWERTYUIOPASDFGH"
    assert text not in repr(redacted(text + " " * (size - len(text)) if size > len(text) else text))


@pytest.mark.parametrize("before", ["\\n", "\\t", "\\u00e9", "%3D", "\\x1b", "é", "=", "_", "/"])
def test_a_token_is_found_behind_an_escape(before):
    assert redacted(f"a{before}AKIAQWERTYUIOPASDFGH") != f"a{before}AKIAQWERTYUIOPASDFGH"


@pytest.mark.parametrize("text", ["XAKIAQWERTYUIOPASDFGH", "AKIAQWERTYUIOPASDFGHX", "AKIAIOSFODNN7EXAMPLE"])
def test_a_part_of_something_else_is_no_token(text):
    assert redacted(text) == text


def test_a_token_of_github_needs_its_checksum():
    wrong = TOKEN[:-1] + ("a" if TOKEN[-1] != "a" else "b")
    assert has_checksum(TOKEN.encode())
    assert not has_checksum(wrong.encode())
    assert redacted(wrong) == wrong


def test_entropy_counts_only_beside_a_telling_name():
    assert redacted({"api_key": SECRET})["api_key"].startswith("[REDACTED named-secret ")
    assert redacted({"checksum": SECRET, "x": [SECRET]}) == {"checksum": SECRET, "x": [SECRET]}


@pytest.mark.parametrize("name", ["api_key", "apiKey", "API-KEY", "dbPassword", "client_secret", "OPENAI_API_KEY_PROD"])
def test_names_that_tell(name):
    assert is_telling(name.encode())


@pytest.mark.parametrize(
    "name", ["next_page_token", "max_tokens", "cache_key", "primary_key", "password_hash", "tokens"]
)
def test_names_that_do_not_tell(name):
    assert not is_telling(name.encode())


def test_the_fingerprint_is_that_of_secret_and_store():
    one, other = Guard().redactor(KEY), Guard().redactor(b"1" * 32)
    item = cbor.encode(TOKEN)
    assert one.item(item, "a") == one.item(item, "b") != other.item(item, "a")


def test_a_value_without_a_secret_is_the_same_object():
    item = cbor.encode({"a": "nothing here"})
    assert Guard().redactor(KEY).item(item, "a") is item


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("**.password", {"db": [{"password": "abc"}]}),
        ("channel.*.pin", {"k": {"pin": 1234}}),
        ("channel.a.b", {"a": {"b": {"c": ["x", b"y", 1.5]}}}),
        ("**.pass*", {"passphrase": "abc"}),
    ],
)
def test_a_field_is_redacted_whatever_it_holds(pattern, value):
    text = repr(redacted(value, Guard(secrets=Secrets(fields=[pattern]))))
    assert "[REDACTED field " in text
    assert not any(each in text for each in ("'abc'", "1234", "'x'", "'y'", "1.5"))


def test_none_and_flags_of_a_field_stay():
    assert redacted({"password": [None, True]}, Guard(secrets=Secrets(fields=["**.password"]))) == {
        "password": [None, True]
    }


def test_a_text_that_is_allowed_stays():
    assert redacted(TOKEN, Guard(secrets=Secrets(allow=[TOKEN]))) == TOKEN
    assert redacted(TOKEN, Guard(secrets=Secrets(allow=["rule:github-token"]))) == TOKEN


def test_a_secret_in_a_key_is_refused():
    with pytest.raises(SecretError, match="github-token") as caught:
        redacted({"a": {TOKEN: 1}})
    assert TOKEN not in str(caught.value)
    assert caught.value.path == "channel.a (a key)"


def test_refuse_raises_and_names_rule_and_path():
    with pytest.raises(SecretError) as caught:
        redacted({"a": {"b": TOKEN}}, Guard(secrets=Secrets(on_found="refuse")))
    assert (caught.value.rule, caught.value.path) == ("github-token", "channel.a.b")
    assert TOKEN not in str(caught.value)


def test_a_secret_in_bytes_that_cannot_be_changed_is_refused():
    with pytest.raises(SecretError, match="neither a text nor msgpack"):
        redacted(b"\x80\x04\x95\xff" + TOKEN.encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-le"])
def test_a_secret_in_wide_characters_is_refused(encoding):
    with pytest.raises(SecretError, match="wide characters"):
        redacted({"a": f"the key is {TOKEN}".encode(encoding)})
    assert redacted("nothing here at all".encode(encoding)) == "nothing here at all".encode(encoding)


@pytest.mark.parametrize("make", ["array([TOKEN])", "str_(TOKEN)", "array([[b'x', TOKEN.encode()]])"])
def test_a_secret_in_numpy_does_not_stay(make):
    numpy = pytest.importorskip("numpy")
    value = eval(f"numpy.{make}", {"numpy": numpy, "TOKEN": TOKEN})
    try:
        assert TOKEN not in repr(redacted(value))
    except SecretError as error:
        assert error.rule == "github-token"  # noqa: PT017 - either will do


@pytest.mark.parametrize(
    "value",
    [
        pathlib.PurePosixPath(f"/x/{TOKEN}"),
        re.compile(TOKEN),
        collections.deque([TOKEN]),
        bytearray(TOKEN.encode()),
        {1: TOKEN, (TOKEN,): 2},
        frozenset([TOKEN, 1]),
    ],
)
def test_a_secret_in_an_everyday_value_does_not_stay(value):
    assert TOKEN not in repr(redacted(value))


@pytest.mark.parametrize(
    ("error", "options", "words"),
    [
        (UsageError, {"on_found": "drop"}, "on_found"),
        (UsageError, {"fields": "**.password"}, "fields"),
        (UsageError, {"fields": None}, "fields is a list of texts, not NoneType"),
        (UsageError, {"fields": [""]}, "one is ''"),
        (UsageError, {"fields": ["."]}, "fields has paths"),
        (UsageError, {"fields": ["a..b"]}, "fields has paths"),
        (UsageError, {"fields": ["[*"]}, "fields has paths"),
        (UsageError, {"allow": 5}, "allow is a list of texts, not int"),
        (UsageError, {"allow": [1]}, "allow"),
        (GuardError, {"allow": ["rule:unknown"]}, "no rule has the name 'unknown'"),
    ],
)
def test_bad_arguments_are_refused(error, options, words):
    with pytest.raises(error, match=words):
        Secrets(**options)


@pytest.mark.parametrize("source", [b"a*", b"", b"(", b"x{9999}"])
def test_a_pattern_that_cannot_guard_is_refused(source):
    with pytest.raises(GuardError):
        Pattern(source)


def test_a_guard_without_re2_is_refused(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    with pytest.raises(GuardError, match="google-re2"):
        Pattern(b"a")


@pytest.mark.parametrize("hostile", ["AKIA" * 20_000, "eyJ" + "a" * 200_000, "secret=" * 20_000, "://a:" * 30_000])
def test_a_hostile_text_takes_no_more_than_its_size(hostile):
    assert redacted(hostile) == hostile


# --- members of JSON within a text -------------------------------------------------------------

FIELDS = Guard(secrets=Secrets(fields=["**.password"]))


def nested(value, depth):
    for _ in range(depth):
        value = json.dumps(value)
    return value


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "secret",
    ["hunter2", "C:\\", "a\\\\", 'a"b', "'", '"', "\\", '\\"', 'a", "b": "c', "a\nb", "é", "[REDACTED x", "$CRED{a} b"],
)
def test_a_member_is_cut_out_of_json_of_any_depth(depth, secret):
    value = {"user": "bob", "password": secret, "x": {"password": [], "y": 1}, "z": ["password", "password: b"]}
    made = redacted(nested(value, depth), FIELDS)
    for _ in range(depth):
        made = json.loads(made)
    assert made.pop("password").startswith("[REDACTED field ")
    assert made == {"user": "bob", "x": {"password": [], "y": 1}, "z": ["password", "password: b"]}


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("value", ["", None, True, [], {}, "$CRED{db}"])
def test_a_member_without_a_secret_stays(depth, value):
    text = nested({"password": value, "user": "bob", "q": "it's", "more": {"password": ""}}, depth)
    assert redacted(text, FIELDS) == text


def test_a_member_stays_in_prose_and_in_repr():
    text = 'The config said "password": "" and then he said "hello" to all. It\'s \'fine\'.'
    assert redacted(text, FIELDS) == text
    assert redacted(repr({"password": "", "user": "bob"}), FIELDS) == "{'password': '', 'user': 'bob'}"
    assert redacted(repr({"password": "it's", "user": "bob"}), FIELDS).endswith("', 'user': 'bob'}") is False
    assert "it's" not in redacted(repr({"password": "it's", "user": "bob"}), FIELDS)


def test_a_member_of_json_that_was_cut_does_not_stay():
    made = redacted('before\n{"password": "hunter2-and-mo', FIELDS)
    assert made.startswith('before\n{"password": "[REDACTED field ')
    made = redacted(json.dumps({"log": '{"password": "hunter2-and-mo', "user": "bob"}), FIELDS)
    assert "hunter2" not in made
    assert json.loads(made)["user"] == "bob"


@pytest.mark.parametrize(
    "hostile",
    [
        "\\" * 200_000 + '"password": "',
        '"password": "' * 30_000,
        '"password": \\"' * 30_000,
        "'password': \"\n" * 30_000,
    ],
)
def test_hostile_json_takes_no_more_than_its_size(hostile):
    FIELDS.secrets.find(hostile.encode())

"""Rules find their secrets and leave everything else unchanged. The tests use re2."""

from __future__ import annotations

import collections
import json
import pathlib
import re
import string
from random import Random
from urllib.parse import quote, quote_plus

import pytest

pytest.importorskip("re2")

from benchmarks.guard_texts import SECRETS, clean, planted
from statelog.errors import GuardError, SecretError, UsageError
from statelog.format import cbor
from statelog.guard import Guard, Secrets
from statelog.guard.pattern import Pattern
from statelog.guard.rules import ASSIGNMENT, ASSIGNMENT_HINTS, RULES, has_checksum, is_sensitive_name

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
def test_a_planted_secret_is_replaced_wherever_it_is(rule):
    random, names = Random(rule), [*SECRETS]
    for turn in range(40):
        found = planted(random, names.index(rule) + turn * len(names))
        for value in (found.text, {"a": [found.text]}, (1, {found.text}), f"x{found.text}"[1:].encode()):
            text = repr(redacted(value))
            assert found.secret.split("\n")[-2 if "\n" in found.secret else 0] not in text, found
            assert f"[REDACTED {rule} " in text, found


@pytest.mark.slow
def test_a_scan_finds_whatever_a_rule_finds():
    """The scan has another pattern than the rules, and rules are applied only to what it finds."""
    random, secrets = Random(4), Secrets()
    for number in range(4000):
        found = planted(random, number)
        for encoded in (found.text.encode(), cbor.encode({"x": found.text}), cbor.encode([found.text])):
            assert secrets.may_be_in(encoded), found


def test_the_hints_of_an_assignment_are_found_wherever_it_is():
    random, assignment, hints = Random(5), Pattern(ASSIGNMENT), Pattern(ASSIGNMENT_HINTS, captures=False)
    texts = [planted(random, number).text.encode() for number in range(2000)]
    found = [text for text in texts if assignment.find(text, 0) is not None]
    assert len(found) > 100
    assert all(map(hints.is_in, found))
    assert not hints.is_in(b"aKey9" * 300)


@pytest.mark.slow
def test_clean_texts_are_unchanged():
    random = Random(3)
    changed = [text for number in range(2000) if redacted(text := clean(random, number)) != text]
    assert changed == []


@pytest.mark.parametrize("size", [*range(18, 28), 255, 256, 300])
def test_a_token_is_found_after_every_cbor_head(size):
    text = "AKIA" + "QWERTYUIOPASDFGH"
    assert text not in repr(redacted(text + " " * (size - len(text)) if size > len(text) else text))


@pytest.mark.parametrize("before", ["\\n", "\\t", "\\u00e9", "%3D", "\\x1b", "é", "=", "_", "/"])
def test_a_token_is_found_after_an_escape(before):
    assert redacted(f"a{before}AKIAQWERTYUIOPASDFGH") != f"a{before}AKIAQWERTYUIOPASDFGH"


@pytest.mark.parametrize("text", ["XAKIAQWERTYUIOPASDFGH", "AKIAQWERTYUIOPASDFGHX", "AKIAIOSFODNN7EXAMPLE"])
def test_a_part_of_another_text_is_not_a_token(text):
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
def test_telling_names_are_recognised(name):
    assert is_sensitive_name(name.encode())


@pytest.mark.parametrize(
    "name", ["next_page_token", "max_tokens", "cache_key", "primary_key", "password_hash", "tokens"]
)
def test_other_names_are_not_recognised_as_telling(name):
    assert not is_sensitive_name(name.encode())


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
def test_a_field_is_redacted_whatever_its_value(pattern, value):
    text = repr(redacted(value, Guard(secrets=Secrets(fields=[pattern]))))
    assert "[REDACTED field " in text
    assert not any(each in text for each in ("'abc'", "1234", "'x'", "'y'", "1.5"))


def test_none_and_flags_of_a_field_are_kept():
    assert redacted({"password": [None, True]}, Guard(secrets=Secrets(fields=["**.password"]))) == {
        "password": [None, True]
    }


def test_an_allowed_text_is_kept():
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
    with pytest.raises(SecretError, match="neither text nor msgpack"):
        redacted(b"\x80\x04\x95\xff" + TOKEN.encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-le"])
def test_a_secret_in_wide_characters_is_refused(encoding):
    with pytest.raises(SecretError, match="UTF-16 or UTF-32"):
        redacted({"a": f"the key is {TOKEN}".encode(encoding)})
    assert redacted("nothing here at all".encode(encoding)) == "nothing here at all".encode(encoding)


@pytest.mark.parametrize("make", ["array([TOKEN])", "str_(TOKEN)", "array([[b'x', TOKEN.encode()]])"])
def test_a_secret_in_a_numpy_array_is_removed(make):
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
        {1: TOKEN, (1,): 2},
        frozenset([TOKEN, 1]),
    ],
)
def test_a_secret_in_an_everyday_value_is_removed(value):
    assert TOKEN not in repr(redacted(value))


@pytest.mark.parametrize("key", [(TOKEN,), (1, ("a", TOKEN))])
def test_a_secret_in_a_tuple_that_is_a_key_is_refused(key):
    with pytest.raises(SecretError, match="a key") as caught:
        redacted({key: 1})
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "options", "words"),
    [
        (UsageError, {"on_found": "drop"}, "on_found"),
        (UsageError, {"fields": "**.password"}, "fields"),
        (UsageError, {"fields": None}, "fields must be a list of str, not NoneType"),
        (UsageError, {"fields": [""]}, "one of them is ''"),
        (UsageError, {"fields": ["."]}, "fields must be paths"),
        (UsageError, {"fields": ["a..b"]}, "fields must be paths"),
        (UsageError, {"fields": ["users[0].password"]}, "write 'users.password'"),
        (UsageError, {"fields": ["a**b"]}, "fields must be paths"),
        (UsageError, {"allow": 5}, "allow must be a list of str, not int"),
        (UsageError, {"allow": [1]}, "allow"),
        (GuardError, {"allow": ["rule:unknown"]}, "no rule has the name 'unknown'"),
    ],
)
def test_invalid_arguments_are_refused(error, options, words):
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile",
    [
        "AKIA" * 20_000,
        "eyJ" + "a" * 200_000,
        "eyJ" * 50_000 + ".eyJaaaaaaaa." + "a" * 30,
        "secret=" * 20_000,
        "://a:" * 30_000,
        "-----BEGIN PRIVATE KEY-----" * 10_000,
    ],
)
def test_a_hostile_text_takes_no_more_than_its_size(hostile):
    assert redacted(hostile) == hostile


# --- long tokens, blocks of keys, and texts that are not secrets -------------------------------------

LONG = "".join(Random(7).choices(string.ascii_letters + string.digits, k=900))
PEM = SECRETS["private-key"](Random(5))
LINES = PEM.split("\n")
AZURITE = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
JWT_IO = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"
    ".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)
PGP = PEM.replace("RSA ", "PGP ").replace("KEY-----", "KEY BLOCK-----", 2).split("\n", 1)


@pytest.mark.parametrize(
    "value",
    [
        {"access_token": LONG},
        f"access_token={LONG} end",
        f"ya29.{LONG} end",
        f"glpat-{LONG} end",
        f"sk_live_{LONG} end",
        f"postgresql://app:{LONG}@db/main",
        {"auth": f"hvs.{LONG}"},
        f"{SECRETS['stripe-key'](Random(3))}{'b' * 200}",
    ],
)
def test_no_part_of_a_long_token_is_left(value):
    text = repr(redacted(value))
    assert "[REDACTED " in text
    assert LONG[-20:] not in text


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"a": json.dumps({"k": PEM})}),
        json.dumps(json.dumps(json.dumps({"k": PEM}))),
        repr(LINES),
        json.dumps(LINES),
        quote(PEM),
        quote_plus(PEM),
        "\n".join(f"> {line}" for line in LINES),
        "\n".join(f"{number}:{line}" for number, line in enumerate(LINES)),
        "\n".join(f"{number:6}→{line}" for number, line in enumerate(LINES)),
        "\n".join(f"-{line}" for line in LINES),
        " +\n".join(f'"{line}\\n"' for line in LINES),
        f"{PGP[0]}\nVersion: GnuPG v2.0.22 (GNU/Linux)\nComment: https://example.com/x\n\n{PGP[1]}",
        "\n".join(LINES[:-2]),
        "\n".join(f"{number:6}→{line}" for number, line in enumerate(LINES[:-2])),
    ],
)
def test_no_line_of_a_private_key_is_left(text):
    made = redacted(f"before {text}")
    assert made.startswith("before ")
    assert "[REDACTED private-key " in made
    assert not any(line[:20] in made for line in LINES[1:-1])


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY----- marks the beginning of a key in PEM, which is base64 of DER between two lines",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqh...your key here...\n-----END PRIVATE KEY-----",
        'if key.startswith("-----BEGIN PRIVATE KEY-----"):\n    load(key, "-----END PRIVATE KEY-----")',
        "private_key = ed25519.Ed25519PrivateKey.generate()",
        "access_token = self.v2.OAuth2Client.getToken3Legged()",
        "AccessToken := oauth2.StaticTokenSource2X(Cfg)",
        "GOOGLE_APPLICATION_CREDENTIALS=/srv/u1/Keys2/sa-Prod-3.json",
        "storage_key: uploads/2024/05/Report-Q3-v2.pdf",
        "secret: projects/42/secrets/Stripe-V2/versions/7",
        "private_key: ./certs/Dev1/Server-Key2.pem",
        "token: Qwen2.5-Coder-32B-Instruct-GGUF-Q4",
        "const apiKey: Config.V2.ApiKey1Type.Default = x",
        "id_token: ord_01HX3Z4Y5W6V7T8S9R0Q",
        "API_KEY=your-API-key-goes-here-1234",
        {"account_key": "ACC-2024-EU1-Cust42-Sub7"},
        {"user_token": "User42-Session7-Device3-Tab1"},
        {"service_key": "svc.Prod-EU1.v2.node-3"},
        "http://db.internal:8080,ops@example.com",
        "[dev](http://localhost:3000)@alice",
        "https://meet:12:30@room1",
        "postgresql://scott:tiger@localhost:5432/mydatabase",
        "postgres://user:mypass@localhost/db",
        "redis://:your-redis-password@host:6379",
        "https://username:password123@example.com/",
        "https://a-host-without-dots-and-long/x@y",
        f"AccountName=devstoreaccount1;AccountKey={AZURITE};",
        JWT_IO,
    ],
)
def test_texts_that_only_look_like_secrets_are_kept(text):
    assert redacted(text) == text


@pytest.mark.slow
@pytest.mark.parametrize("letters", ["letters and digits", "base64", "base64 for URLs", "hex", "groups"])
def test_random_values_beside_a_telling_name_are_removed(letters):
    random = Random(6)
    alphabet = string.ascii_letters + string.digits + {"base64": "+/", "base64 for URLs": "-_"}.get(letters, "")
    missed = 0
    for _ in range(2000):
        value = "".join(random.choices("0123456789abcdef" if letters == "hex" else alphabet, k=40))
        if letters == "groups":
            value = "-".join(value[at : at + 10] for at in range(0, 40, 10))
        missed += Guard().secrets.find_named("api_key", value.encode()) is None
    assert missed <= 8  # Some have no digit.


@pytest.mark.parametrize(
    "text",
    [
        "api_key: >-\n  {}\n",
        "api_key: |\n      {}",
        "<api_key>{}</api_key>",
        "run --api-key {} --more",
        'run --token "{}"',
        "curl -H 'Authorization: Bearer {}'",
    ],
)
def test_a_named_value_is_found_in_yaml_xml_and_commands(text):
    made = redacted(f"before\n{text.format(SECRET)}")
    assert SECRET not in made
    assert "[REDACTED named-secret " in made


@pytest.mark.parametrize("text", ["the secret {} is public", "if key>{}: pass", "-token {}", "my token {}"])
def test_a_value_after_a_word_of_prose_is_kept(text):
    assert redacted(text.format(SECRET)) == text.format(SECRET)


@pytest.mark.parametrize(
    "address",
    [
        "https:\\/\\/app:{}@h.example",
        "wss://app:{}@h.example",
        "kafka://app:{}@h.example",
        "ssh://app:{}@h.example",
        "socks5://app:{}@h.example",
        "https://{}x8Kq2ZpLm9Vt4Rw7@github.com/o/r.git",
    ],
)
def test_a_password_in_a_url_is_removed(address):
    text = address.format("c0rrectH0rse")
    assert "c0rrectH0rse" not in redacted(f'{{"a": "{text}"}}')


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


@pytest.mark.parametrize("name", ["contraseña", "密码", "p😀"])
@pytest.mark.parametrize("pattern", ["**.{}", "**.{}*"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_member_is_found_by_its_escaped_name(name, pattern, is_ascii):
    text = json.dumps(json.dumps({name: "hola-1234"}, ensure_ascii=is_ascii), ensure_ascii=is_ascii)
    given = Guard(secrets=Secrets(fields=[pattern.format(name)]))
    assert "hola-1234" not in redacted(text, given)
    assert "hola-1234" not in redacted(text.replace("\\u00f1", "\\u00F1"), given)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("value", ["", None, True, [], {}, "$CRED{db}"])
def test_a_member_without_a_secret_is_kept(depth, value):
    text = nested({"password": value, "user": "bob", "q": "it's", "more": {"password": ""}}, depth)
    assert redacted(text, FIELDS) == text


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("number", [0, 123456, -1.5e3, 1e-7])
def test_a_number_becomes_a_text_of_json(depth, number):
    made = redacted(nested({"password": number, "more": [{"password": number}], "user": "bob"}, depth), FIELDS)
    for _ in range(depth):
        made = json.loads(made)
    assert made["user"] == "bob"
    assert made["password"].startswith("[REDACTED field ")
    assert made["more"][0]["password"] == made["password"]


def test_a_member_is_kept_in_prose_and_in_repr():
    text = 'The config said "password": "" and then he said "hello" to all. It\'s \'fine\'.'
    assert redacted(text, FIELDS) == text
    assert redacted(repr({"password": "", "user": "bob"}), FIELDS) == "{'password': '', 'user': 'bob'}"
    assert redacted(repr({"password": "it's", "user": "bob"}), FIELDS).endswith("', 'user': 'bob'}") is False
    assert "it's" not in redacted(repr({"password": "it's", "user": "bob"}), FIELDS)


def test_a_member_of_truncated_json_is_removed():
    made = redacted('before\n{"password": "hunter2-and-mo', FIELDS)
    assert made.startswith('before\n{"password": "[REDACTED field ')
    made = redacted(json.dumps({"log": '{"password": "hunter2-and-mo', "user": "bob"}), FIELDS)
    assert "hunter2" not in made
    assert json.loads(made)["user"] == "bob"


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile",
    [
        "\\" * 200_000 + '"password": "',
        '"password": "' * 30_000,
        '"password": \\"' * 30_000,
        "'password': \"\n" * 30_000,
        '"password": "abc" ' * 30_000,
    ],
)
def test_hostile_json_takes_no_more_than_its_size(hostile):
    redacted(hostile, FIELDS)

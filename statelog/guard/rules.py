"""Rules for well-known credentials.

Precision comes first: each rule checks the vendor's prefix, and a checksum if possible. A text without a known prefix
counts as a secret only next to a sensitive field name (`api_key`), and only if it looks random.
"""

from __future__ import annotations

import binascii
import math
import re
from base64 import urlsafe_b64decode
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable

_BASE_62: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CHECKSUM_SIZE: Final = 6
_BEGINNING_SIZE: Final = 48


def entropy(text: bytes) -> float:
    """Return the entropy of a text in bits per byte."""
    size = len(text)
    shares = [text.count(byte) / size for byte in set(text)]
    return -sum(share * math.log2(share) for share in shares)


def _is_varied(text: bytes) -> bool:
    """Return True unless a text is a placeholder such as `ghp_xxxxxxxx`.

    A long text passes even if only its beginning is varied.
    """
    return entropy(text) >= 3 or entropy(text[:_BEGINNING_SIZE]) >= 3


def has_checksum(token: bytes) -> bool:
    """Return True if a GitHub token ends with the CRC-32 of its random part, in base 62."""
    body = token.partition(b"_")[2]
    number = crc32(body[:-_CHECKSUM_SIZE])
    digits = bytearray()
    for _ in range(_CHECKSUM_SIZE):
        number, digit = divmod(number, 62)
        digits.append(_BASE_62[digit])
    return bytes(digits[::-1]) == body[-_CHECKSUM_SIZE:]


def _is_aws(token: bytes) -> bool:
    return not token.endswith(b"EXAMPLE") and _is_varied(token)


def _is_jwt(token: bytes) -> bool:
    if _is_sample(token):
        return False
    head = token.partition(b".")[0]
    try:
        decoded = urlsafe_b64decode(head + b"=" * (-len(head) % 4))
    except (binascii.Error, ValueError):
        return False
    return decoded.startswith(b"{") and b'"alg"' in decoded


_SAMPLES: Final = (
    b"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1",  # This is the key of Azure's storage emulator.
    b"SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",  # These are the signatures of the token that jwt.io shows.
    b"TJVA95OrM7E2cBab30RMHrHDcEfxjoYZgeFONFh7HgQ",
)
"""Parts of sample credentials that vendors publish."""


def _is_sample(text: bytes) -> bool:
    return any(sample in text for sample in _SAMPLES)


def _is_storage_key(text: bytes) -> bool:
    return _is_varied(text) and not _is_sample(text)


def _has_key(block: bytes) -> bool:
    """Return True if a PEM block has a key in base64, not only prose about a key."""
    plain = re.sub(rb"%2[BFbf]|\\+/", b"/", block)
    return sum(len(run) for run in re.findall(rb"[A-Za-z0-9+/]{20,}", plain) if _is_varied(run)) >= _KEY_SIZE_MIN


_KEY_SIZE_MIN: Final = 40

_PLACEHOLDERS: Final = frozenset(
    b"changeme change_me changeit example user root admin test postgres mysql guest redis hidden tiger toor".split()
)

_PLACEHOLDER = re.compile(
    rb"(?:(?:your|my|the|some|test|super|db|redis|pg|postgres|mysql|mongo|user|root|admin|app|database|dev)[-_]?){0,3}"
    rb"(?:password|passwd|passwort|pass|pwd|pw|secret|token)[-_]?(?:here|[0-9]{0,3})",
    re.IGNORECASE,
)
"""The pattern of passwords in examples: `mypass`, `your-redis-password`, `password123`."""

_REFERENCE = re.compile(
    rb"\$\{?\w+\}?|\$CRED\{.*|<.*>|\{.*\}|\[.*\]?|%s|%\(\w+\)s|%\w+%|[*x.\xe2\x80\xa6]+|[0-9]{2,5}[,;)|\]].*"
    rb"|[0-9]{1,2}:[0-9]{2}",
    re.IGNORECASE,
)
"""The pattern of strings that are not a password: a variable, a format field, dots, a time, or a port and its path."""


def _is_password(text: bytes) -> bool:
    """Return True unless the password in a URL is a placeholder, or a reference to a password."""
    if text.lower() in _PLACEHOLDERS or len(set(text)) == 1:
        return False
    return _REFERENCE.fullmatch(text) is None and _PLACEHOLDER.fullmatch(text) is None


def _is_token_of_host(text: bytes) -> bool:
    return is_random(text)


class SecretRule(NamedTuple):
    """A rule that recognises one kind of secret."""

    name: str
    pattern: bytes
    """The pattern in re2's syntax. The secret is the group `secret`, or the whole match if there is no such group."""
    accepts: Callable[[bytes], bool] = _is_varied
    """A function that gets the matched secret, and returns False if it is not a secret after all."""
    is_bounded: bool = False
    """Whether a match next to a letter or digit does not count, because it is part of a longer word."""
    more: bytes = b""
    """The characters that may continue the secret after the match.

    The pattern itself is bounded: an unbounded pattern would take quadratic time on a text in which many secrets
    begin.
    """
    resumes_at: bytes = b""
    """A part of each match. After a rejected match, the search continues after this part."""


_SCHEMES = (
    rb"(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver|oracle|cockroachdb|clickhouse|snowflake"
    rb"|redshift|neo4j|bolt|couchbase|cassandra|ldaps?|smtps?|ftps?|sftp|nats|https?|git|wss?|kafka|ssh|socks[45]?h?|imaps?"
    rb"|pop3s?|mqtts?|tcp|svn|smb|rt[ms]ps?|turns?|etcd|influxdb|elasticsearch|trino|libsql|valkeys?)(?:\+[a-z0-9_]{1,20}){0,2}"
)
_SLASHES = rb":(?:\\{0,7}/){2}"
_PEM_SPACE = rb"(?: |\+|%20)"
_PEM_NAME = rb"(?:[A-Z0-9]{1,12}" + _PEM_SPACE + rb"){0,3}PRIVATE" + _PEM_SPACE + rb"KEY(?:" + _PEM_SPACE + rb"BLOCK)?"
_PEM_BEGIN = rb"-----BEGIN" + _PEM_SPACE + _PEM_NAME + rb"-----"
_PEM_END = rb"-----END" + _PEM_SPACE + _PEM_NAME + rb"-----"
_PEM_CUT = rb"(?:[A-Za-z0-9+/=\s:,>|]|\xe2\x86\x92|\\+[nr/]|%0[ADad]|%2[BFbf]|%3[Dd]|-[A-Za-z0-9])"
"""The pattern of a part of a PEM block that has no end line. A block with an end line may contain anything."""

_WORDS = rb"[A-Za-z0-9_-]"

RULES: Final = (
    SecretRule("aws-access-key", rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}", _is_aws, is_bounded=True),
    SecretRule("github-token", rb"gh[pousr]_[A-Za-z0-9]{36}", has_checksum),
    SecretRule("github-fine-grained", rb"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    SecretRule("gitlab-token", rb"gl(?:pat|ptt|dt|rt|cbt|ft|soat)-[A-Za-z0-9_-]{20,64}", more=_WORDS),
    SecretRule("slack-token", rb"xox[abeoprs]-(?:[0-9]{1,20}-){1,4}[A-Za-z0-9-]{16,120}", more=rb"[A-Za-z0-9-]"),
    SecretRule("slack-app-token", rb"xapp-[0-9]-[A-Z0-9]{8,16}-[0-9]{8,16}-[a-f0-9]{32,80}", more=rb"[a-f0-9]"),
    SecretRule(
        "slack-webhook",
        rb"hooks\.slack\.com/(?:services|workflows)/(?P<secret>T[A-Z0-9]{7,12}/[A-Z][A-Z0-9]{7,12}/[A-Za-z0-9/]{16,60})",
        more=rb"[A-Za-z0-9/]",
    ),
    SecretRule("stripe-key", rb"[sr]k_(?:live|test)_[0-9A-Za-z]{16,200}", more=rb"[0-9A-Za-z]"),
    SecretRule("webhook-secret", rb"whsec_[A-Za-z0-9+/]{24,100}={0,2}", more=rb"[A-Za-z0-9+/=]"),
    SecretRule(
        "openai-key",
        rb"sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,200}|[A-Za-z0-9_-]{16,80}T3BlbkFJ[A-Za-z0-9_-]{16,80})",
        more=_WORDS,
    ),
    SecretRule("openai-key", rb"sk-[A-Za-z0-9]{48}", is_bounded=True),
    SecretRule("anthropic-key", rb"sk-ant-[a-z]{3,8}[0-9]{2}-[A-Za-z0-9_-]{32,200}", more=_WORDS),
    SecretRule("openrouter-key", rb"sk-or-v1-[0-9a-f]{64}"),
    SecretRule("google-api-key", rb"AIza[0-9A-Za-z_-]{35}", is_bounded=True),
    SecretRule("google-oauth-secret", rb"GOCSPX-[A-Za-z0-9_-]{28}"),
    SecretRule("google-oauth-token", rb"ya29\.[0-9A-Za-z_-]{30,400}", more=_WORDS),
    SecretRule(
        "private-key",
        _PEM_BEGIN + rb"(?:(?:[^-]|-{1,4}[^-])*-?" + _PEM_END + rb"|" + _PEM_CUT + rb"+)",
        _has_key,
    ),
    SecretRule("jwt", rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{20,}", _is_jwt, resumes_at=b"."),
    SecretRule("npm-token", rb"npm_[A-Za-z0-9]{36}", is_bounded=True),
    SecretRule("pypi-token", rb"pypi-AgE(?:IcHlwaS5vcmc|NdGVzdC5weXBpLm9yZ)[A-Za-z0-9_-]{50,400}", more=_WORDS),
    SecretRule("huggingface-token", rb"hf_[A-Za-z]{34}", is_bounded=True),
    SecretRule("sendgrid-key", rb"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    SecretRule("digitalocean-token", rb"do[opr]_v1_[a-f0-9]{64}"),
    SecretRule("databricks-token", rb"dapi[a-f0-9]{32}", is_bounded=True),
    SecretRule("telegram-token", rb"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}", is_bounded=True),
    SecretRule(
        "discord-webhook",
        rb"discord(?:app)?\.com/api/webhooks/[0-9]{17,20}/(?P<secret>[A-Za-z0-9_-]{60,80})",
        more=_WORDS,
    ),
    SecretRule("azure-storage-key", rb"AccountKey=(?P<secret>[A-Za-z0-9+/]{86}==)", _is_storage_key),
    SecretRule("groq-key", rb"gsk_[A-Za-z0-9]{52}", is_bounded=True),
    SecretRule("xai-key", rb"xai-[A-Za-z0-9]{80}"),
    SecretRule("perplexity-key", rb"pplx-[A-Za-z0-9]{48}", is_bounded=True),
    SecretRule("replicate-token", rb"r8_[A-Za-z0-9]{37}", is_bounded=True),
    SecretRule("langsmith-key", rb"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    SecretRule("tavily-key", rb"tvly-(?:dev-|prod-)?[A-Za-z0-9]{32}", is_bounded=True),
    SecretRule("supabase-token", rb"sbp_[a-f0-9]{40}", is_bounded=True),
    SecretRule("linear-key", rb"lin_(?:api|oauth)_[A-Za-z0-9]{40,64}", more=rb"[A-Za-z0-9]"),
    SecretRule("notion-token", rb"ntn_[A-Za-z0-9]{40,50}", is_bounded=True),
    SecretRule("vault-token", rb"hv[sb]\.[A-Za-z0-9_-]{90,300}", more=_WORDS),
    SecretRule("docker-token", rb"dckr_(?:pat|oat)_[A-Za-z0-9_-]{27,32}", more=_WORDS),
    SecretRule("shopify-token", rb"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", is_bounded=True),
    SecretRule("grafana-token", rb"glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}"),
    SecretRule("pulumi-token", rb"pul-[a-f0-9]{40}", is_bounded=True),
    SecretRule("age-key", rb"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}"),
    SecretRule(
        "url-password",
        rb"(?i:" + _SCHEMES + rb")" + _SLASHES + rb"[^\s/@:\"'<>\\]{0,80}:(?P<secret>[^\s/@\"'<>\\]{3,})@[A-Za-z0-9\[]",
        _is_password,
    ),
    SecretRule(
        "url-password",
        rb"(?i:https?)" + _SLASHES + rb"(?P<secret>[A-Za-z0-9_-]{20,})@"
        rb"(?i:(?:www\.)?(?:github|gitlab|bitbucket|huggingface|codeberg|gitea)\.)",
        _is_token_of_host,
    ),
)

# --- random values next to a sensitive name --------------------------------------------

_SENSITIVE_NAME = re.compile(
    rb"(?:(?:api|access|secret|private|auth|client|encryption|signing|master|account|subscription|storage|app|service"
    rb"|shared)keys?|secrets?|passwords?|passwd|passphrases?|pwd|"
    rb"(?:access|auth|refresh|bearer|api|session|security|bot|oauth|personal|secret|deploy|github|gitlab|slack|user|id"
    rb")tokens?|credentials?|authorization)(?:prod|production|dev|test|live|staging|[0-9])?$|^token$"
)
_NAME_NOUNS = rb"(?:key|secret|password|passwd|passphrase|pwd|token|credentials?|authorization)"
_VALUE_LETTERS = rb"[A-Za-z0-9+/=_.~-]"
_VALUE = _VALUE_LETTERS + rb"{20}"
_VALUE_SIZE_MIN: Final = 20
_BITS_MIN: Final = 3.3
_CHANGES_MIN: Final = 6

ASSIGNMENT = (
    rb"(?P<name>[A-Za-z0-9_.-]{0,40}(?i:" + _NAME_NOUNS + rb")(?:[_-]?[A-Za-z0-9]{1,10})?)"
    rb"[\"'\\\]]{0,4}(?:\s{0,4}(?:=>|:=|[:=])\s{0,4}(?:[>|][+-]?\s{1,20})?|>|\s{1,4})[\"'\\]{0,4}"
    rb"(?:(?i:bearer|basic|token|bot) {1,2})?(?P<secret>" + _VALUE + rb")"
)
"""The pattern of a sensitive name and the beginning of its value in a text.

It covers settings, JSON, YAML, headers, queries, XML and commands.
"""

ASSIGNMENT_HINTS = rb"(?i:" + _NAME_NOUNS + rb")[A-Za-z0-9_-]*?[\"'\\\]]*[:=>\s]"
"""A pattern that matches every text in which `ASSIGNMENT` matches.

It is fast, because it has no counted repetitions.
"""


def assigns(before: bytes, name: bytes, between: bytes) -> bool:
    """Return True if the text between a name and a value assigns the value to the name.

    `>` assigns only in XML (`<api_key>...`), and blanks assign only in options of a command (`--api-key ...`).
    """
    if b":" in between or b"=" in between:
        return True
    return before == b"<" if b">" in between else name.startswith(b"--")


HINTS = (
    rb"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{6}|gh[pousr]_[A-Za-z0-9]{6}|github_pat_|gl(?:pat|ptt|dt|rt|cbt|ft|soat)-|xox[abeoprs]-"
    rb"|xapp-|hooks\.slack\.com|[sr]k_(?:live|test)_|whsec_|sk-(?:proj|svca|admi|ant-|or-v)|T3BlbkFJ|sk-[A-Za-z0-9]{20}"
    rb"|AIza[0-9A-Za-z_-]{6}|GOCSPX-|ya29\.|PRIVATE(?: |\+|%20)KEY|eyJ[A-Za-z0-9_-]{8,}\.eyJ|npm_[A-Za-z0-9]{6}"
    rb"|pypi-AgE|hf_[A-Za-z]{6}|SG\.[A-Za-z0-9_-]{6}|do[opr]_v1_|dapi[a-f0-9]{6}|[0-9]:AA[A-Za-z0-9_-]{6}|/api/webhooks/"
    rb"|AccountKey=|gsk_|xai-|pplx-|r8_|lsv2_|tvly-|sbp_|lin_|ntn_|hv[sb]\.|dckr_|shp(?:at|ca|pa|ss)_|glsa_|pul-"
    rb"|AGE-SECRET|:\\*/\\*/(?:[^\s/@:\"'<>\\]*:[^\s/@\"'<>\\]{3,}|[A-Za-z0-9_-]{20}[A-Za-z0-9_-]*)@"
)
"""A pattern that matches every text in which a rule finds a secret.

It is short, because re2 slows down with counted repetitions.
"""

FIELD_HINTS = (
    rb"(?i:key|secret|passw|passphrase|pwd|token|credential|authorization)[A-Za-z0-9_-]*?"
    rb"(?:[ ./(\[]+[A-Za-z0-9]*[)\]]*)?"
    rb"(?:(?:\xd9(?:\xc8[de]|\x01\x02))?(?:[\x81-\x9f][@-{\x81-\x9f\xc4-\xc6\xd8-\xdb]|[\x90-\x9f][\xa0-\xbf]|[\x98\x99\xdc\xdd])"
    rb"|(?:[e\xa5]value)?"
    rb"(?:[\"'\\\]\s]*(?:=>|:=|[:=])[\s\"'\\]*|[T-Wt-w\xb4-\xbf]|(?s:[Xx\xc4\xd9].|[Yy\xc5\xda]..|[Zz\xc6\xdb]....))"
    rb"(?:(?i:bearer|basic|token|bot) +)?[A-Za-z0-9+/=_.~-]{20})"
)
"""The pattern of a possible name of a secret and a value, in a text, CBOR or msgpack.

In CBOR and msgpack, the head of a string of 20 bytes or more is between a key and its value. A list, tuple or set after
a name may have a secret anywhere if its first item is a str, bytes or a list. A msgpack map begins like a CBOR list,
but the next byte differs. The lazy `*?` lets re2 stop at the first match. With `*`, re2 is four times slower in base64.
"""

STORED_HINTS = rb"(?i:key|secret|passw|passphrase|pwd|token|credential|authorization)[A-Za-z0-9_-]*?[\xfc\xfd]"
"""The pattern of a possible name of a secret before a ref, because a record stores a long value in a separate node."""

NAME_HINTS = rb"(?i:key|secret|passw|passphrase|pwd|token|credential|authorization)"
"""A pattern that occurs in every sensitive name, such as `api_key`."""

SETTING_HINTS = (
    rb"(?i:key|secret|passw|passphrase|pwd|token|credential|authorization)[A-Za-z0-9_-]*?(?:>|: ?[>|][+-]?\s+)"
    rb"[A-Za-z0-9+/=_.~-]{20}|--[A-Za-z0-9-]*?(?i:key|secret|passw|passphrase|pwd|token|credential)[A-Za-z0-9-]*?\s+[\"']?"
    rb"[A-Za-z0-9+/=_.~-]{20}"
)
"""The pattern of a possible sensitive name and a value, in XML, in a block of YAML, or in an option of a command."""

WIDE = rb"(?:[!-~]\x00{1,3}){8}|(?:\x00{1,3}[!-~]){8}"
"""The pattern of a text in UTF-16 or UTF-32, as numpy stores strings."""

SINGLE_ARGUMENT = rb"Secret(?:Str|Bytes)"
"""The pattern of pydantic's classes of secrets, as LangGraph's serialiser names them."""


def is_sensitive_name(name: bytes) -> bool:
    """Return True if a field of this name probably holds a secret: `api_key`, `clientSecret`, `token`."""
    return _SENSITIVE_NAME.search(re.sub(rb"[^a-z0-9]", b"", name.lower())) is not None


_SCHEME = re.compile(rb"(?i:bearer|basic|token|bot) {1,2}")
_WHOLE_VALUE = re.compile(_VALUE_LETTERS + rb"{20,}")
_REST_OF_VALUE = re.compile(_VALUE_LETTERS + rb"*")
_PART_OF_VALUE = re.compile(_VALUE_LETTERS + rb"{0,380}")


def random_part(value: bytes) -> tuple[int, int] | None:
    """Return the span of the random part of a field's value, or None. `Bearer` may precede that part."""
    scheme = _SCHEME.match(value)
    start = scheme.end() if scheme else 0
    if _WHOLE_VALUE.fullmatch(value, start) is None or not is_random(value[start:]):
        return None
    return start, len(value)


def end_of_value(text: bytes, at: int, *, is_whole: bool) -> int:
    """Return the end offset of a value whose beginning was matched up to `at`.

    If `is_whole` is False, read at most 380 more bytes, because the caller tests no more of the value.
    """
    found = (_REST_OF_VALUE if is_whole else _PART_OF_VALUE).match(text, at)
    return at if found is None else found.end()


_UUID = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ULID = re.compile(rb"(?:[a-z]{2,8}_)?01[0-9A-HJKMNP-TV-Z]{16,24}")
_REFERENCE_IN_CODE = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,17}(?:\.[A-Za-z_][A-Za-z0-9_]{0,17}){2,}")
_PATH = re.compile(rb"[^=+]*/[^/=+]*\.[a-z][a-z0-9]{1,4}")
_INSTRUCTION = re.compile(rb"(?i)your[-_]|example|placeholder|redacted")
_SEPARATORS = re.compile(rb"[^A-Za-z0-9]+")
_WORD = re.compile(rb"[a-z]{3}")
_WORD_SIZE_MAX: Final = 12
_WORDS_MIN: Final = 3
_CHANGES_OF_WORDS_MAX: Final = 0.34
_TESTED_SIZE_MAX: Final = 4096


def is_random(value: bytes) -> bool:
    """Return True if a value has at least 20 bytes and looks random, not like words, a path, an id or code."""
    value = value[:_TESTED_SIZE_MAX]
    if len(value) < _VALUE_SIZE_MIN or entropy(value) < _BITS_MIN or not re.search(rb"[0-9]", value):
        return False
    if any(each.fullmatch(value) for each in (_UUID, _ULID, _REFERENCE_IN_CODE, _PATH)):
        return False
    return _changes(value) >= _CHANGES_MIN and not (
        _is_sample(value) or _INSTRUCTION.search(value) is not None or _is_of_words(value)
    )


def _changes(value: bytes) -> int:
    """Count the changes between digits, capitals and small letters in a value."""
    kinds = [1 if byte < 0x3A else 2 if byte < 0x5B else 3 for byte in value if bytes((byte,)).isalnum()]
    return sum(a != b for a, b in pairwise(kinds))


def _is_of_words(value: bytes) -> bool:
    """Return True if a value consists of short words and numbers between punctuation: `Qwen2.5-Coder-32B-Instruct`."""
    words = [word for word in _SEPARATORS.split(value) if word]
    if len(words) < _WORDS_MIN or max(map(len, words)) > _WORD_SIZE_MAX or _WORD.search(value) is None:
        return False
    return sum(map(_changes, words)) <= _CHANGES_OF_WORDS_MAX * sum(map(len, words))

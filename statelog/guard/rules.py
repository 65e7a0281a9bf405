"""Rules for well-known credentials. Precision comes first: each has its vendor's prefix, and a checksum if possible.

A text without a prefix counts as a secret only beside a field name that tells so, and only if it looks random.
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


def entropy(text: bytes) -> float:
    """Return the entropy of a text in bits a byte."""
    size = len(text)
    shares = [text.count(byte) / size for byte in set(text)]
    return -sum(share * math.log2(share) for share in shares)


def _always(_text: bytes) -> bool:
    return True


def _is_varied(text: bytes) -> bool:
    """Return True unless a text is a placeholder, such as `ghp_xxxxxxxx`."""
    return entropy(text) >= 3


def has_checksum(token: bytes) -> bool:
    """Return True if a token of GitHub ends with the CRC-32 of its random part, in base 62."""
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
    head = token.partition(b".")[0]
    try:
        decoded = urlsafe_b64decode(head + b"=" * (-len(head) % 4))
    except (binascii.Error, ValueError):
        return False
    return decoded.startswith(b"{") and b'"alg"' in decoded


_PLACEHOLDERS: Final = frozenset(
    b"password passwd passwort pass pwd pw secret changeme change_me example mysecretpassword your_password"
    b" yourpassword your-password user root admin test postgres mysql guest token redis mypassword dbpassword"
    b" db_password hidden".split()
)


_REFERENCE = re.compile(
    rb"\$\{?\w+\}?|\$CRED\{.*|<.*>|\{.*\}|\[.*\]?|%s|%\(\w+\)s|%\w+%|[*x.\xe2\x80\xa6]+", re.IGNORECASE
)
"""What stands for a password: a variable, a field of a format, dots."""


def _is_password(text: bytes) -> bool:
    """Return True unless the password of an address is a placeholder, or a reference to one."""
    return text.lower() not in _PLACEHOLDERS and len(set(text)) > 1 and _REFERENCE.fullmatch(text) is None


class Rule(NamedTuple):
    """What a kind of secret looks like."""

    name: str
    pattern: bytes
    """In re2's syntax. The group `secret`, if there is one, is the secret."""
    accepts: Callable[[bytes], bool] = _is_varied
    """Called with the secret: return False if it is none after all."""
    is_bounded: bool = False
    """Whether a letter or digit right before or behind means that it is a part of something else."""


_SCHEMES = (
    rb"(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver|oracle|cockroachdb|clickhouse|snowflake"
    rb"|redshift|neo4j|bolt|couchbase|cassandra|ldaps?|smtps?|ftps?|sftp|nats|https?|git)(?:\+[a-z0-9_]{1,20}){0,2}"
)
_PEM_BODY = rb"(?:[A-Za-z0-9+/=\s:,]|\\[nr]|-[A-Za-z0-9])"

RULES: Final = (
    Rule("aws-access-key", rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}", _is_aws, is_bounded=True),
    Rule("github-token", rb"gh[pousr]_[A-Za-z0-9]{36}", has_checksum),
    Rule("github-fine-grained", rb"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    Rule("gitlab-token", rb"gl(?:pat|ptt|dt|rt|cbt|ft|soat)-[A-Za-z0-9_-]{20,64}"),
    Rule("slack-token", rb"xox[abeoprs]-(?:[0-9]{1,20}-){1,4}[A-Za-z0-9-]{16,120}"),
    Rule("slack-app-token", rb"xapp-[0-9]-[A-Z0-9]{8,16}-[0-9]{8,16}-[a-f0-9]{32,80}"),
    Rule(
        "slack-webhook",
        rb"hooks\.slack\.com/(?:services|workflows)/(?P<secret>T[A-Z0-9]{7,12}/[A-Z][A-Z0-9]{7,12}/[A-Za-z0-9/]{16,60})",
    ),
    Rule("stripe-key", rb"[sr]k_(?:live|test)_[0-9A-Za-z]{16,200}"),
    Rule("webhook-secret", rb"whsec_[A-Za-z0-9+/]{24,100}={0,2}"),
    Rule(
        "openai-key",
        rb"sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,200}|[A-Za-z0-9_-]{16,80}T3BlbkFJ[A-Za-z0-9_-]{16,80})",
    ),
    Rule("openai-key", rb"sk-[A-Za-z0-9]{48}", is_bounded=True),
    Rule("anthropic-key", rb"sk-ant-[a-z]{3,8}[0-9]{2}-[A-Za-z0-9_-]{32,200}"),
    Rule("openrouter-key", rb"sk-or-v1-[0-9a-f]{64}"),
    Rule("google-api-key", rb"AIza[0-9A-Za-z_-]{35}", is_bounded=True),
    Rule("google-oauth-secret", rb"GOCSPX-[A-Za-z0-9_-]{28}"),
    Rule("google-oauth-token", rb"ya29\.[0-9A-Za-z_-]{30,400}"),
    Rule(
        "private-key",
        rb"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----" + _PEM_BODY + rb"{60,}"
        rb"(?:-----END (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----)?",
    ),
    Rule("jwt", rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{20,}", _is_jwt),
    Rule("npm-token", rb"npm_[A-Za-z0-9]{36}", is_bounded=True),
    Rule("pypi-token", rb"pypi-AgE(?:IcHlwaS5vcmc|NdGVzdC5weXBpLm9yZ)[A-Za-z0-9_-]{50,400}"),
    Rule("huggingface-token", rb"hf_[A-Za-z]{34}", is_bounded=True),
    Rule("sendgrid-key", rb"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    Rule("digitalocean-token", rb"do[opr]_v1_[a-f0-9]{64}"),
    Rule("databricks-token", rb"dapi[a-f0-9]{32}", is_bounded=True),
    Rule("telegram-token", rb"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}", is_bounded=True),
    Rule("discord-webhook", rb"discord(?:app)?\.com/api/webhooks/[0-9]{17,20}/(?P<secret>[A-Za-z0-9_-]{60,80})"),
    Rule("azure-storage-key", rb"AccountKey=(?P<secret>[A-Za-z0-9+/]{86}==)"),
    Rule("groq-key", rb"gsk_[A-Za-z0-9]{52}", is_bounded=True),
    Rule("xai-key", rb"xai-[A-Za-z0-9]{80}"),
    Rule("perplexity-key", rb"pplx-[A-Za-z0-9]{48}", is_bounded=True),
    Rule("replicate-token", rb"r8_[A-Za-z0-9]{37}", is_bounded=True),
    Rule("langsmith-key", rb"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    Rule("tavily-key", rb"tvly-(?:dev-|prod-)?[A-Za-z0-9]{32}", is_bounded=True),
    Rule("supabase-token", rb"sbp_[a-f0-9]{40}", is_bounded=True),
    Rule("linear-key", rb"lin_(?:api|oauth)_[A-Za-z0-9]{40,64}"),
    Rule("notion-token", rb"ntn_[A-Za-z0-9]{40,50}", is_bounded=True),
    Rule("vault-token", rb"hv[sb]\.[A-Za-z0-9_-]{90,300}"),
    Rule("docker-token", rb"dckr_(?:pat|oat)_[A-Za-z0-9_-]{27,32}"),
    Rule("shopify-token", rb"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", is_bounded=True),
    Rule("grafana-token", rb"glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}"),
    Rule("pulumi-token", rb"pul-[a-f0-9]{40}", is_bounded=True),
    Rule("age-key", rb"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}"),
    Rule(
        "url-password",
        rb"(?i:" + _SCHEMES + rb")://[^\s/@:\"'<>\\]{0,80}:(?P<secret>[^\s/@\"'<>\\]{3,200})@[A-Za-z0-9\[]",
        _is_password,
    ),
)

# --- entropy beside a telling name ----------------------------------------------------

_TELLING = re.compile(
    rb"(?:(?:api|access|secret|private|auth|client|encryption|signing|master|account|subscription|storage|app|service"
    rb"|shared)key|secret|password|passwd|passphrase|pwd|"
    rb"(?:access|auth|refresh|bearer|api|session|security|bot|oauth|personal|secret|deploy|github|gitlab|slack|user|id"
    rb")token|credentials?|authorization)(?:prod|production|dev|test|live|staging|[0-9])?$|^token$"
)
_NAME_NOUNS = rb"(?:key|secret|password|passwd|passphrase|pwd|token|credentials?|authorization)"
_VALUE = rb"[A-Za-z0-9+/=_.~-]{20,400}"
_VALUE_SIZE_MIN: Final = 20
_BITS_MIN: Final = 3.3
_CHANGES_MIN: Final = 6

ASSIGNMENT = (
    rb"(?P<name>[A-Za-z0-9_.-]{0,40}(?i:" + _NAME_NOUNS + rb")(?:[_-]?[A-Za-z0-9]{1,10})?)"
    rb"[\"'\\\]]{0,4}\s{0,4}(?:=>|:=|[:=])\s{0,4}[\"'\\]{0,4}(?:(?i:bearer|basic|token|bot) {1,2})?(?P<secret>"
    + _VALUE
    + rb")"
)
"""A telling name and a value in a text: a setting, JSON, a header, a query."""

HINTS = (
    rb"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{6}|gh[pousr]_[A-Za-z0-9]{6}|github_pat_|gl(?:pat|ptt|dt|rt|cbt|ft|soat)-|xox[abeoprs]-"
    rb"|xapp-|hooks\.slack\.com|[sr]k_(?:live|test)_|whsec_|sk-(?:proj|svca|admi|ant-|or-v)|T3BlbkFJ|sk-[A-Za-z0-9]{20}"
    rb"|AIza[0-9A-Za-z_-]{6}|GOCSPX-|ya29\.|PRIVATE KEY|eyJ[A-Za-z0-9_-]{8,}\.eyJ|npm_[A-Za-z0-9]{6}|pypi-AgE"
    rb"|hf_[A-Za-z]{6}|SG\.[A-Za-z0-9_-]{6}|do[opr]_v1_|dapi[a-f0-9]{6}|[0-9]:AA[A-Za-z0-9_-]{6}|/api/webhooks/"
    rb"|AccountKey=|gsk_|xai-|pplx-|r8_|lsv2_|tvly-|sbp_|lin_|ntn_|hv[sb]\.|dckr_|shp(?:at|ca|pa|ss)_|glsa_|pul-"
    rb"|AGE-SECRET|://[^\s/@:\"'<>\\]*:[^\s/@\"'<>\\]{3,}@"
)
"""What is in a text if a rule finds a secret in it. It is short, because re2 slows down with counted repetitions."""

FIELD_HINTS = (
    rb"(?i:key|secret|passw|passphrase|pwd|token|credential|authorization)[A-Za-z0-9_-]*"
    rb"(?:[ ./(\[]+[A-Za-z0-9]*[)\]]*)?"
    rb"(?:(?:\xd9(?:\xc8[de]|\x01\x02))?(?:[\x81-\x9f][@-{\x81-\x9f\xc4-\xc6\xd8-\xdb]|[\x90-\x9f][\xa0-\xbf]|[\x98\x99\xdc\xdd])"
    rb"|(?:[e\xa5]value)?"
    rb"(?:[\"'\\\]\s]*(?:=>|:=|[:=])[\s\"'\\]*|[T-Wt-w\xb4-\xbf]|(?s:[Xx\xc4\xd9].|[Yy\xc5\xda]..|[Zz\xc6\xdb]....))"
    rb"(?:(?i:bearer|basic|token|bot) +)?[A-Za-z0-9+/=_.~-]{20})"
)
"""A name that may tell, and a value, in a text or in CBOR and msgpack. There, the head of a text of 20 bytes or more is
between a key and its value. A list, tuple or set behind a name may have a value anywhere if its first item is a text,
bytes or a list. A map of msgpack begins like a list of CBOR, and the next byte tells them apart."""

WIDE = rb"(?:[!-~]\x00{1,3}){8}|(?:\x00{1,3}[!-~]){8}"
"""A text in UTF-16 or UTF-32, as numpy stores texts."""

SINGLE_ARGUMENT = rb"Secret(?:Str|Bytes)"
"""A class of pydantic, as LangGraph's serialiser names it."""


def is_telling(name: bytes) -> bool:
    """Return True if a field of this name probably holds a secret: `api_key`, `clientSecret`, `token`."""
    return _TELLING.search(re.sub(rb"[^a-z0-9]", b"", name.lower())) is not None


_SCHEME = re.compile(rb"(?i:bearer|basic|token|bot) {1,2}")
_WHOLE_VALUE = re.compile(_VALUE)


def random_part(value: bytes) -> tuple[int, int] | None:
    """Return the span of a field's value that looks random, or None. `Bearer` may stand before it."""
    scheme = _SCHEME.match(value)
    start = scheme.end() if scheme else 0
    if _WHOLE_VALUE.fullmatch(value, start) is None or not is_random(value[start:]):
        return None
    return start, len(value)


def is_random(value: bytes) -> bool:
    """Return True if a value of 20 bytes or more looks random, and not like words, a path or a UUID."""
    if len(value) < _VALUE_SIZE_MIN or entropy(value) < _BITS_MIN or not re.search(rb"[0-9]", value):
        return False
    if re.fullmatch(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", value):
        return False
    kinds = [1 if byte < 0x3A else 2 if byte < 0x5B else 3 for byte in value if bytes((byte,)).isalnum()]
    return sum(a != b for a, b in pairwise(kinds)) >= _CHANGES_MIN

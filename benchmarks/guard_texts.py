"""Texts with a planted secret, and similar texts without one, with which a guard is measured and tested.

Every secret is generated from a seed. None is real.
"""

from __future__ import annotations

import base64
import hashlib
import json
import string
import uuid
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_ALNUM = string.ascii_letters + string.digits
_URL = _ALNUM + "-_"
_BASE_62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits


def _some(random: Random, letters: str, size: int) -> str:
    return "".join(random.choices(letters, k=size))


def _checked(random: Random, prefix: str) -> str:
    """Return a token with the checksum that GitHub's tokens have."""
    body = _some(random, _ALNUM, 30)
    number, digits = crc32(body.encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = _BASE_62[digit] + digits
    return f"{prefix}{body}{digits}"


def _jwt(random: Random) -> str:
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": _some(random, string.digits, 10), "iat": 1516239022}]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*texts, _some(random, _URL, 43)])


def _pem(random: Random) -> str:
    body = base64.b64encode(random.randbytes(600)).decode()
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    kind = random.choice(["", "RSA ", "EC ", "OPENSSH "])
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----"


SECRETS: dict[str, Callable[[Random], str]] = {
    "aws-access-key": lambda r: r.choice(["AKIA", "ASIA"]) + _some(r, string.ascii_uppercase + "234567", 16),
    "github-token": lambda r: _checked(r, f"gh{r.choice('pousr')}_"),
    "github-fine-grained": lambda r: f"github_pat_{_some(r, _ALNUM, 22)}_{_some(r, _ALNUM, 59)}",
    "gitlab-token": lambda r: f"glpat-{_some(r, _URL, 20)}",
    "slack-token": lambda r: f"xoxb-{_some(r, string.digits, 12)}-{_some(r, string.digits, 12)}-{_some(r, _ALNUM, 24)}",
    "slack-app-token": lambda r: f"xapp-1-A{_some(r, _UPPER, 10)}-{_some(r, string.digits, 13)}-{_some(r, _HEX, 64)}",
    "slack-webhook": lambda r: f"T{_some(r, _UPPER, 8)}/B{_some(r, _UPPER, 8)}/{_some(r, _ALNUM, 24)}",
    "stripe-key": lambda r: f"{r.choice('sr')}k_live_{_some(r, _ALNUM, 24)}",
    "webhook-secret": lambda r: f"whsec_{base64.b64encode(r.randbytes(24)).decode()}",
    "openai-key": lambda r: f"sk-proj-{_some(r, _URL, 74)}T3BlbkFJ{_some(r, _URL, 74)}",
    "anthropic-key": lambda r: f"sk-ant-api03-{_some(r, _URL, 93)}AA",
    "openrouter-key": lambda r: f"sk-or-v1-{_some(r, _HEX, 64)}",
    "google-api-key": lambda r: f"AIza{_some(r, _URL, 34)}{_some(r, _ALNUM, 1)}",
    "google-oauth-secret": lambda r: f"GOCSPX-{_some(r, _URL, 28)}",
    "google-oauth-token": lambda r: f"ya29.{_some(r, _URL, 120)}",
    "private-key": _pem,
    "jwt": _jwt,
    "npm-token": lambda r: _checked(r, "npm_"),
    "pypi-token": lambda r: f"pypi-AgEIcHlwaS5vcmc{_some(r, _URL, 120)}",
    "huggingface-token": lambda r: f"hf_{_some(r, string.ascii_letters, 34)}",
    "sendgrid-key": lambda r: f"SG.{_some(r, _URL, 22)}.{_some(r, _URL, 43)}",
    "digitalocean-token": lambda r: f"dop_v1_{_some(r, _HEX, 64)}",
    "databricks-token": lambda r: f"dapi{_some(r, _HEX, 32)}",
    "telegram-token": lambda r: f"{_some(r, '123456789', 9)}:AA{_some(r, _URL, 32)}{_some(r, _ALNUM, 1)}",
    "discord-webhook": lambda r: _some(r, _URL, 68),
    "azure-storage-key": lambda r: base64.b64encode(r.randbytes(64)).decode(),
    "groq-key": lambda r: f"gsk_{_some(r, _ALNUM, 52)}",
    "xai-key": lambda r: f"xai-{_some(r, _ALNUM, 80)}",
    "perplexity-key": lambda r: f"pplx-{_some(r, _ALNUM, 48)}",
    "replicate-token": lambda r: f"r8_{_some(r, _ALNUM, 37)}",
    "langsmith-key": lambda r: f"lsv2_pt_{_some(r, _HEX, 32)}_{_some(r, _HEX, 10)}",
    "tavily-key": lambda r: f"tvly-dev-{_some(r, _ALNUM, 32)}",
    "supabase-token": lambda r: f"sbp_{_some(r, _HEX, 40)}",
    "linear-key": lambda r: f"lin_api_{_some(r, _ALNUM, 40)}",
    "notion-token": lambda r: f"ntn_{_some(r, _ALNUM, 43)}",
    "vault-token": lambda r: f"hvs.{_some(r, _URL, 95)}",
    "docker-token": lambda r: f"dckr_pat_{_some(r, _URL, 27)}",
    "shopify-token": lambda r: f"shpat_{_some(r, _HEX, 32)}",
    "grafana-token": lambda r: f"glsa_{_some(r, _ALNUM, 32)}_{_some(r, _HEX, 8)}",
    "pulumi-token": lambda r: f"pul-{_some(r, _HEX, 40)}",
    "age-key": lambda r: f"AGE-SECRET-KEY-1{_some(r, 'QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L', 58)}",
    "url-password": lambda r: _some(r, _ALNUM + "!*-_.$%(", 14),
    "named-secret": lambda r: _some(r, _ALNUM, 40),
}
"""A secret of each rule, keyed by the name of the rule."""

_AROUND = {
    "slack-webhook": "https://hooks.slack.com/services/{}",
    "discord-webhook": "https://discord.com/api/webhooks/123456789012345678/{}",
    "azure-storage-key": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.net",
    "url-password": "postgresql+asyncpg://app:{}@db.internal:5432/main",
    "named-secret": "STRIPE_SECRET_KEY={}",
}
"""The text around a secret that some rules need."""

_PLACES = (
    "{}",
    "the key is {}.",
    "Use {} for the deployment, and nothing else",
    "export KEY={}\nrun",
    '{{"auth": "{}", "n": 1}}',
    "line\\n{}\\nline",
    "curl -H 'Authorization: Bearer {}' https://api.example.com",
    "ValueError('cannot log in with {}')",
    "<key>{}</key>",
    "Schlüssel: „{}“",
)


class Planted(NamedTuple):
    """A text with a secret in it."""

    rule: str
    secret: str
    text: str


def planted(random: Random, number: int) -> Planted:
    """Return text `number` with a secret. The rules take turns, and the places of the secrets vary."""
    rule = [*SECRETS][number % len(SECRETS)]
    secret = SECRETS[rule](random)
    text = _PLACES[random.randrange(len(_PLACES))].format(_AROUND.get(rule, "{}").format(secret))
    return Planted(rule, secret, text)


_TEXT = (
    "the agent reads a token from the page and keeps its secret password policy in mind while each access key of the"
    " table is sorted and the api returns next page results with credentials that users rotate every ninety days as the"
    " guide says before authorization is checked by the gateway so that nothing leaks into logs or traces"
)


def _prose(r: Random) -> str:
    return " ".join(r.choices(_TEXT.split(), k=60)).capitalize() + "."


def _code(r: Random) -> str:
    name = "".join(r.choices(string.ascii_lowercase, k=8))
    return r.choice(
        [
            f"def {name}(self, api_key: str, token=None):\n    return self.create(api_key=api_key, token=token)\n",
            f'password = os.environ["{name.upper()}_PASSWORD"]\nsecret = settings.get_secret_value()\n',
            f"secret_key = sha256({name}.encode()).hexdigest()\naccess_token = response.json()['access_token']\n",
            f'const {name}Token = await getAccessToken({{ scope: "https://www.example.com/auth/{name}" }});\n',
            f"postgresql://user:password@localhost/{name}\nredis://:$REDIS_PASSWORD@cache:6379/0\n",
            f'apiKey: "<your-{name}-api-key-here>"\nclient_secret: ${{{name.upper()}_CLIENT_SECRET_V2}}\n',
            f"sk-{name}-{name} task-{name} risk-{name} ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx AKIAIOSFODNN7EXAMPLE\n",
            f'"token": "{name} {name}", "max_tokens": 4096, "token_count": 1234567890123456789012\n',
        ]
    )


def _ids(r: Random) -> str:
    one = uuid.UUID(int=r.getrandbits(128), version=4)
    call = _some(r, _ALNUM, 24)
    return json.dumps(
        {
            "id": str(one),
            "tool_call_id": f"call_{call}",
            "message_id": f"msg_01{call}",
            "cache_key": hashlib.sha256(call.encode()).hexdigest(),
            "next_page_token": _some(r, _URL, 60),
            "token": str(one),
            "request": f"req_{call}",
            "checkpoint_id": f"1f0{_some(r, _HEX, 5)}-{_some(r, _HEX, 4)}-6a00-8000-{_some(r, _HEX, 12)}",
            "url": f"https://example.com/{_some(r, _URL, 22)}?page_token={_some(r, _URL, 30)}",
        }
    )


def _lock(r: Random) -> str:
    name = "".join(r.choices(string.ascii_lowercase, k=7))
    digest = r.randbytes(64)
    return (
        f'"node_modules/{name}": {{"version": "1.{r.randrange(99)}.0", "resolved": "https://registry.npmjs.org/{name}/-/'
        f'{name}-1.0.0.tgz", "integrity": "sha512-{base64.b64encode(digest).decode()}"}}\n'
        f'[[package]]\nname = "{name}"\nchecksum = "{digest[:32].hex()}"\n'
        f"{name}==1.0 --hash=sha256:{digest[32:].hex()}\n"
    )


_CLEAN: tuple[Callable[[Random], str], ...] = (
    _prose,
    _code,
    _ids,
    lambda r: base64.b64encode(r.randbytes(r.randrange(30, 1500))).decode(),
    lambda r: base64.urlsafe_b64encode(r.randbytes(r.randrange(30, 1500))).decode(),
    lambda r: "\n".join(f"{hashlib.sha256(r.randbytes(8)).hexdigest()}  file-{number}.txt" for number in range(9)),
    _lock,
    lambda r: f"data:image/png;base64,{base64.b64encode(r.randbytes(900)).decode()}",
)


def clean(random: Random, number: int) -> str:
    """Return clean text `number`. Prose, code, ids, base64, hashes and lock files take turns."""
    return _CLEAN[number % len(_CLEAN)](random)

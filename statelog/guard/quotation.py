"""Prepares untrusted text for a prompt."""

from __future__ import annotations

import json
import re
from secrets import token_hex
from typing import Any, Final

from statelog.errors import UsageError
from statelog.format.quarantined import Quarantined
from statelog.guard.injection import FLAG, TEMPLATE

_NONCE_SIZE_BYTES: Final = 8

_KEPT = (
    rf"{FLAG}"
    "|(?<=[\u0600-\u08ff\u0900-\u0dff\u0e00-\u1aff])[\u200c\u200d](?=[\u0600-\u08ff\u0900-\u0dff\u0e00-\u1aff])"
    "|(?<=[\u2190-\u2bff\U0001f000-\U0001faff\ufe0f])\u200d(?=[\u2190-\u2bff\U0001f000-\U0001faff])"
    "|(?<=[#*0-9\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f](?![\ufe00-\ufe0f])"
)
"""The pattern of invisible characters that some scripts and emoji need."""
_SHOWN = (
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_INVISIBLE = re.compile(f"({_KEPT})|({_SHOWN})")
_TOKEN = re.compile(TEMPLATE)


def quote(value: Any) -> str:
    """Return untrusted text for a prompt, between delimiters that the text cannot close.

    The delimiters have a random number, which is new in each call. Invisible characters are shown as `[U+200B]`, except
    those that Arabic and Indian scripts and emoji need. Blanks are inserted into the tokens of chat templates, so that
    a model does not mistake them for real tokens. The delimiters alone do not protect a model. The prompt must say that
    the text between them is data.

    Args:
        value: a str, or a value that JSON can represent, which is written as JSON.

    Raises:
        UsageError: JSON cannot represent the value. Facts: argument.
    """
    if isinstance(value, Quarantined):
        value = repr(value)
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=False, default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            message = f"value must be a str, or a value that JSON can represent, not {type(value).__name__}"
            raise UsageError(message, argument="value") from error
    value = value.encode("utf-8", "replace").decode()
    value = _INVISIBLE.sub(lambda found: found[1] or f"[U+{ord(found[2]):04X}]", value)
    value = _TOKEN.sub(lambda found: _apart(found[0]), value)
    nonce = token_hex(_NONCE_SIZE_BYTES)
    return f"<untrusted-{nonce}>\n{value}\n</untrusted-{nonce}>"


def _apart(token: str) -> str:
    """Insert blanks after the opening and before the closing signs of a token."""
    return re.sub(r"(?<=[<\[|\uff5c/])|(?=[>\]|\uff5c])", " ", token)


def _plain(value: Any) -> Any:
    """Return the JSON form of a view of a state or of a placeholder. Raises TypeError for any other object."""
    if isinstance(value, Quarantined):
        return repr(value)
    if hasattr(value, "to_python"):
        return value.to_python()
    raise TypeError

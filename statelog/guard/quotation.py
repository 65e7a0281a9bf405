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
"""Invisible characters by which scripts join letters, and by which emoji are made."""
_SHOWN = (
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_INVISIBLE = re.compile(f"({_KEPT})|({_SHOWN})")
_TOKEN = re.compile(TEMPLATE)


def quote(value: Any) -> str:
    """Return untrusted text between delimiters that the text cannot close, for a prompt.

    The delimiters have a number that is random in each call. Invisible characters are shown as `[U+200B]`, except those
    that Arabic and Indian scripts and emoji need. Tokens of chat templates get blanks, so that no model takes them for
    its own. This does not make a model obey or ignore the text: tell it what is between the delimiters.

    Args:
        value: a text; any other value that JSON has, which is written as JSON.

    Raises:
        UsageError: JSON does not have the value.
    """
    if isinstance(value, Quarantined):
        value = repr(value)
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=False, default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            message = f"quote takes a text, or a value that JSON has, not {type(value).__name__}"
            raise UsageError(message, argument="value") from error
    value = value.encode("utf-8", "replace").decode()
    value = _INVISIBLE.sub(lambda found: found[1] or f"[U+{ord(found[2]):04X}]", value)
    value = _TOKEN.sub(lambda found: _apart(found[0]), value)
    nonce = token_hex(_NONCE_SIZE_BYTES)
    return f"<untrusted-{nonce}>\n{value}\n</untrusted-{nonce}>"


def _apart(token: str) -> str:
    """Return a token with blanks between its signs."""
    return re.sub(r"(?<=[<\[|\uff5c/])|(?=[>\]|\uff5c])", " ", token)


def _plain(value: Any) -> Any:
    """Return a view of a state, or a placeholder, as JSON has it."""
    if isinstance(value, Quarantined):
        return repr(value)
    if hasattr(value, "to_python"):
        return value.to_python()
    raise TypeError

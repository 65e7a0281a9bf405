"""A tripwire for injected instructions: invisible characters, chat template tokens, and phrases that override others.

Avoiding false alarms comes first. A text that only mentions a phrase, in quotes, in backticks or in a block of code, is
not reported. So an attacker who knows the rules can evade them. `injection` finds careless attacks, but does not make a
text safe.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from statelog.format import cbor
from statelog.format.quarantined import Quarantined
from statelog.guard.pattern import Pattern
from statelog.guard.verdicts import Verdict, Where, allow, quarantine

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH_MAX = 64

# --- invisible characters -------------------------------------------------------------

ZERO_WIDTH: Final = "\u180e\u200b-\u200f\u2060-\u2064\ufeff"
_JOINERS = "\u200c\u200d"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
FLAG: Final = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f"
"""The pattern of a region's flag, such as Scotland's, whose letters are tag characters."""

_FLAGS = re.compile(FLAG)
_TAGS = re.compile("[\U000e0000-\U000e007f]")
_RUN = re.compile(f"[{ZERO_WIDTH}]{{4,}}|[{_SELECTORS}]{{2,}}")
_IN_WORDS = re.compile(f"[A-Za-z][{ZERO_WIDTH}]+(?=[A-Za-z])")
_IN_WORDS_MAX: Final = 4
"""The maximum number of Latin words with zero-width characters in an allowed text.

Typesetting produces a few, and a hidden message needs many.
"""
_SELECTED_LETTER = re.compile("[A-Za-z ][\ufe00-\ufe0d\U000e0100-\U000e01ef]")
_REVERSED = re.compile("\u202e")
_BIDI = re.compile("[\u202a-\u202d\u2066-\u2068]")
_PHONE = re.compile("[\u202a\u202d][+0-9 ()./\u00a0-]{3,30}\u202c")
"""The pattern of a telephone number that was copied from a list of contacts."""
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_INVISIBLE = re.compile(f"[{ZERO_WIDTH}\u00ad]")

# --- chat templates ---------------------------------------------------------------------

_ROLE = r"(?:system|user|assistant|model|tool|developer|ipython|function|human)"
TEMPLATE: Final = (
    r"<[|\uff5c][A-Za-z_\u2581][A-Za-z0-9_\u2581]{1,40}[|\uff5c]>"
    r"|\[/?INST\]|<</?SYS>>|</?(?:start|end)_of_turn>|\[/?(?:SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
)
"""The pattern of the tokens of chat templates, which separate the messages of system, user and model."""
_TEMPLATE = re.compile(TEMPLATE)
_KNOWN = re.compile(
    r"im_(?:start|end|sep)|end_?of_?text|begin_of_text|(?:start|end)_header_id|eot_id|eom_id|end_of_turn|start_of_turn"
    r"|start_of_role|end_of_role|fim_\w+|python_tag|(?:begin|end)[\u2581_]of[\u2581_]sentence"
    rf"|channel|message|return|call|constrain|START_OF_TURN_TOKEN|END_OF_TURN_TOKEN|\w+_TOKEN|{_ROLE}",
    re.IGNORECASE,
)

# --- phrases ---------------------------------------------------------------------------

_WORDS = r"(?:all|any|every|each|of|the|your|my|our|these|those|this|that|and|other|its|their)"
_OLD = r"(?:previous|previously|prior|above|earlier|preceding|foregoing|existing|original|initial|past|given|system)"
_ORDERS_GIVEN = r"(?:instructions?|prompts?|directives?|system\s+(?:prompt|messages?|instructions?))"
_RULES = r"(?:directions?|guidelines?|rules|commands?|programming|training|constraints|restrictions|policies)"
_ANY = r"(?:all|any|every|each|your)"
"""The pattern of words without which an order to ignore rules is not reported.

Comments and configurations often ignore single rules.
"""
_BEGINS = re.compile(
    r"(?:^|[.!?:;,>*#\]})-]\s{0,9}|\n\s{0,9}|\b(?:please|now|must|should|you\s(?:may|can|will|must|should)|and|then|so|also"
    r"|(?:you\s(?:are|have|need)|need\syou|want\syou|ask\syou|instructed|ordered|required|supposed)\sto)\s{1,9})\Z",
    re.IGNORECASE,
)
"""The pattern of the text before an order.

It does not match the text before a report of an order: `tells the model to ignore ...`.
"""
_BEGINS_SIZE_MAX: Final = 32
_HEAD_BEGINS = re.compile(r"(?:^|\n|[.!#*>])\s{0,9}\Z")
_GIVEN = (
    r"(?:(?:that\s+)?(?:you\s+)?(?:were|was|have\s+been|had\s+been)\s+(?:given|told)|(?:given\s+|stated\s+|listed\s+)?above"
    r"|before|so\s+far|from\s+(?:before|above|the\s+(?:system|user|developer)))"
)
_ORDERS = (
    rf"(?:ignore|disregard|forget|override|bypass|discard|overrule)\s+(?:"
    rf"(?:{_WORDS}\s+){{0,4}}(?:{_OLD}\s+(?:\w+\s+){{0,2}}?{_ORDERS_GIVEN}|{_ORDERS_GIVEN}\s+{_GIVEN})"
    rf"|(?:{_WORDS}\s+){{0,2}}{_ANY}\s+(?:{_WORDS}\s+){{0,3}}(?:{_OLD}\s+(?:\w+\s+)?{_RULES}|{_RULES}\s+{_GIVEN})"
    r"|(?:everything|anything|all|what)\s+(?:you\s+(?:were|have\s+been|was)\s+told|(?:that\s+was\s+)?(?:said\s+)?(?:above|before\s+this)))"
)
_SECRECY = (
    r"(?:do\s+not|don't|never)\s+(?:tell|inform|alert|warn|notify|mention\s+(?:this|it|that)\s+to|reveal\s+(?:this|it)\s+to"
    r"|disclose\s+(?:this|it)\s+to|show\s+(?:this|it)\s+to)\s+(?:the\s+|your\s+)?(?:user|human|operator|owner)\b"
    r"(?=\s+(?:about|of|that\s+you)\s+(?:this|these|it|you|the\s+(?:instructions?|request|message))|\s*[.!\n]|\s*$)"
)
_PROMPT = (
    r"(?:reveal|print|repeat|output|show|display|leak|send|tell\s+me|give\s+me|email|post)\s+(?:me\s+)?(?:"
    r"(?:(?:all|out|of|exactly)\s+){0,2}your\s+(?:\w+\s+){0,2}?(?:system\s+(?:prompt|message|instructions?)"
    r"|(?:hidden|initial|secret|internal)\s+(?:prompt|instructions?))"
    r"|(?:(?:all|out|of)\s+){0,2}the\s+(?:\w+\s+){0,2}?(?:system\s+prompt|(?:hidden|secret)\s+(?:system\s+)?(?:prompt|instructions?)))"
)
_PERSONA = (
    r"(?:you\s+are\s+now|from\s+now\s+on,?\s+(?:you\s+(?:are|will\s+be|must\s+act\s+as)|act\s+as|behave\s+as|pretend))\s+"
    r"(?:(?:an?|the|in|called|named|my)\s+){0,2}(?:\w+[\s-]+){0,2}?"
    r"(?:DAN\b|jailbroken|unrestricted|unfiltered|uncensored|developer\s+mode|god\s+mode|evil|root\s+mode|admin\s+mode)"
)
_HEADS = (
    r"(?-i:New|NEW|Real|REAL)\s+(?:system\s+)?(?:instructions?|prompt|directives?)\s*(?:for\s+(?:you|the\s+(?:assistant|AI|model))\s*)?:"
    r"(?=\s*\S)|system\s+override\b|(?:begin|end|start)\s+of\s+(?:the\s+)?(?:system|hidden)\s+(?:prompt|instructions?)"
)
_OTHERS = (
    r"ignorier(?:e|en\s+sie)\s+(?:bitte\s+)?(?:alle\s+)?(?:die\s+|deine\s+|ihre\s+)?(?:vorherigen|bisherigen|obigen|vorigen|fr\u00fcheren)\s+"
    r"(?:anweisungen|instruktionen|befehle|regeln)"
    r"|ignore[zs]?\s+(?:toutes\s+)?les\s+(?:instructions|consignes|r\u00e8gles)\s+(?:pr\u00e9c\u00e9dentes|ant\u00e9rieures|ci-dessus)"
    r"|ignor[ae]\s+(?:todas\s+)?(?:las|tus)\s+instrucciones\s+(?:anteriores|previas)"
    r"|ignor[ae]\s+(?:todas\s+)?as\s+instru\u00e7\u00f5es\s+(?:anteriores|acima)"
    r"|ignora\s+(?:tutte\s+)?le\s+istruzioni\s+(?:precedenti|di\s+prima)"
    r"|\u5ffd\u7565(?:\u4f60)?(?:\u4e4b\u524d|\u4ee5\u4e0a|\u4e0a\u9762|\u5148\u524d|\u6240\u6709)(?:\u7684|\u6240\u6709)*(?:\u6307\u4ee4|\u6307\u793a|\u8bf4\u660e|\u63d0\u793a)"
    r"|\u0438\u0433\u043d\u043e\u0440\u0438\u0440\u0443\u0439(?:\u0442\u0435)?\s+(?:\u0432\u0441\u0435\s+)?(?:\u043f\u0440\u0435\u0434\u044b\u0434\u0443\u0449\u0438\u0435|\u0432\u0441\u0435)\s+\u0438\u043d\u0441\u0442\u0440\u0443\u043a\u0446\u0438\u0438"
    r"|(?:\u4ee5\u524d|\u4e0a\u8a18|\u3053\u308c\u307e\u3067)\u306e\u6307\u793a\u3092(?:\u3059\u3079\u3066)?\u7121\u8996"
)
_TRIGGER = re.compile(
    r"(?<![A-Za-z])(?:ignor|disregard|forget|overrid|overrul|bypass|discard|reveal|print|repeat|output|show|display|leak|send"
    r"|tell\s+me|give\s+me|email|post|do\s+not|don't|never|you\s+are\s+now|from\s+now|new\s|real\s|system\s+over|begin\s|end\s"
    r"|start\s)|\u5ffd\u7565|\u0438\u0433\u043d\u043e\u0440|(?:\u4ee5\u524d|\u4e0a\u8a18|\u3053\u308c\u307e\u3067)\u306e\u6307\u793a",
    re.IGNORECASE,
)
"""The pattern of the beginnings of all phrases."""
_PHRASE = re.compile(
    rf"(?P<order>{_ORDERS}|{_PROMPT}|{_SECRECY})|(?P<other>{_PERSONA}|{_OTHERS})|(?P<head>{_HEADS})", re.IGNORECASE
)

_MENTION = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]{1,400}`"
    r"|\"[^\"\n]{1,400}\"|\u201c[^\u201d\n]{1,400}\u201d|\u00ab[^\u00bb\n]{1,400}\u00bb|\u201e[^\u201c\u201d\n]{1,400}[\u201c\u201d]"
    r"|\u300c[^\u300d\n]{1,400}\u300d|\u2018[^\u2019\n]{1,400}\u2019|(?<![A-Za-z0-9])[BbFfRrUu]{0,2}'[^'\n]{1,400}'(?![A-Za-z0-9])",
    re.DOTALL,
)
"""The pattern of quotations and code, in which a phrase or a token is only mentioned."""

_HINTS = (
    b"\xe1\xa0\x8e|\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf|\xef\xb8[\x80-\x8f]|\xf3\xa0[\x80-\x87]"
    b"|<[|]|<\xef\xbd\x9c|\\[/?(?:INST|SYSTEM_PROMPT|AVAIL|TOOL_)|<</?SYS|_of_turn>"
    b"|(?i:ignor|disregard|forget|overrid|overrul|bypass|discard|you\\s+are\\s+now|from\\s+now\\s+on|system\\s+override"
    b"|(?:do\\s+not|don't|never)\\s+(?:tell|inform|alert|warn|notify|mention|reveal|disclose|show)"
    b"|(?:system|hidden|initial|secret|internal)\\s+(?:prompt|message|instruction)"
    b"|(?:new|real)\\s+(?:system\\s+)?(?:instruction|prompt|directive))"
    b"|\xe5\xbf\xbd\xe7\x95\xa5|\xe7\x84\xa1\xe8\xa6\x96|\xd0\xb8\xd0\xb3\xd0\xbd\xd0\xbe\xd1\x80|\xd0\x98\xd0\xb3\xd0\xbd\xd0\xbe\xd1\x80"
)
"""A pattern that occurs in every encoded value that has a text to report."""


@lru_cache(maxsize=1)
def _hints() -> Pattern:
    return Pattern(_HINTS, captures=False)


class _Injection:
    """The type of `injection`."""

    __slots__ = ()
    __name__ = "injection"

    def __repr__(self) -> str:
        return "statelog.guard.injection"

    def __call__(self, value: Any, _where: Where, /) -> Verdict:
        """Return "quarantine" if a text in a value looks like an injected instruction."""
        for text in _texts(value, 0):
            reason = reason_of(text)
            if reason is not None:
                return quarantine(reason)
        return allow()

    def may_be_in(self, encoded: bytes) -> bool:
        """Return False if an encoded value certainly has no text to report.

        This takes linear time, like the check itself.
        """
        return _hints().is_in(encoded)


injection: Final = _Injection()
"""A check for `on_write` and `on_read`.

It reports invisible characters, tokens of chat templates, and phrases that override instructions.

Its verdict is "quarantine". It is a tripwire for careless attacks. A text that it allows is not necessarily safe.
"""


def reason_of(text: str) -> str | None:
    """Return the reason to report a text, such as "invisible tag characters", or None."""
    if text.isascii():
        plain = text
    else:
        found = _hidden_in(text)
        if found is not None:
            return found
        plain = _INVISIBLE.sub("", text)
    if plain.lstrip()[:1] in _STARTS_OF_JSON and (texts := _texts_of_json(plain)) is not None:
        return next((found for each in texts if (found := _spoken_in(each)) is not None), None)
    return _spoken_in(plain)


def _spoken_in(text: str) -> str | None:
    """Return the reason to report a token or phrase that a text uses rather than mentions, or None."""
    found = [*_tokens_in(text), *_phrases_in(text)]
    if not found:
        return None
    mentions = [span.span() for span in _MENTION.finditer(text)]
    starts = [start for start, _end in mentions]
    for start, end, reason in found:
        at = bisect_right(starts, start) - 1
        if at < 0 or mentions[at][1] < end:
            return reason
    return None


def _tokens_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and reason of each token of a chat template, unless the token is the whole text."""
    for token in _TEMPLATE.finditer(text):
        is_known = token[0][:2] not in ("<|", "<\uff5c") or _KNOWN.fullmatch(token[0][2:-2]) is not None
        if is_known and token[0] != text.strip():
            yield *token.span(), "a token of a chat template"


def _phrases_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and reason of each phrase that overrides instructions."""
    for trigger in _TRIGGER.finditer(text):
        phrase = _PHRASE.match(text, trigger.start())
        if phrase is not None and _is_said(text, trigger.start(), phrase.lastgroup):
            yield *phrase.span(), "a phrase of instruction override"


def _is_said(text: str, at: int, kind: str | None) -> bool:
    """Return True if the text before a phrase that begins at `at` makes the phrase an order or a heading."""
    begins = {"order": _BEGINS, "head": _HEAD_BEGINS}.get(kind or "")
    return begins is None or begins.search(text, max(0, at - _BEGINS_SIZE_MAX), at) is not None


_STARTS_OF_JSON = ("{", "[")


def _texts_of_json(text: str) -> list[str] | None:
    """Return the strings in a JSON text, or None if it is not JSON. JSON's own quotes do not mark a mention."""
    try:
        return [*_texts(json.loads(text), 0)]
    except (ValueError, RecursionError):
        return None


def _hidden_in(text: str) -> str | None:
    """Return the reason to report invisible characters that hide data in a text, or None."""
    if _TAGS.search(text) is not None and _TAGS.search(_FLAGS.sub("", text)) is not None:
        return "invisible tag characters"
    if _RUN.search(text) is not None or _SELECTED_LETTER.search(text) is not None:
        return "invisible characters that carry data"
    if len(_IN_WORDS.findall(text)) > _IN_WORDS_MAX:
        return "invisible characters within words"
    if _REVERSED.search(text) is not None:
        return "a reversal of the direction of writing"
    if _RIGHT_TO_LEFT.search(text) is None and _BIDI.search(_PHONE.sub("", text)) is not None:
        return "controls of the direction of writing"
    return None


def _texts(value: Any, depth: int) -> Iterator[str]:
    """Yield the texts in a value, including keys, and texts in models and in objects that have codecs."""
    if depth > _DEPTH_MAX or value is None or isinstance(value, int | float | Quarantined):
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes | bytearray):
        yield bytes(value).decode("utf-8", "ignore")
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(key, depth + 1)
            yield from _texts(each, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _texts(each, depth + 1)
    elif (coded := cbor.payload_of(value)) is not None:
        yield from _texts(coded[1], depth + 1)
    elif hasattr(value, "__dict__"):
        yield from _texts({**vars(value)}, depth + 1)

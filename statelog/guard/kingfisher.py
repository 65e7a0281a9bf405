"""Finds secrets by the rules of kingfisher-secret-scanner, in addition to the rules of this library.

Kingfisher has hundreds of rules. It takes seconds to start, and a tenth of a millisecond for a text of 2 KB. So only
`statelog secrets scan --engine kingfisher` uses it, not commits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from statelog.errors import GuardError
from statelog.guard.secrets import RULE_SIZE_MAX, Secrets, SecretSpan, apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NO_LETTERS = re.compile(r"[^a-z0-9]+")


class KingfisherSecrets(Secrets):
    """The rules of this library and of Kingfisher. A secret that both find has the name of this library's rule.

    Args:
        fields: as for `Secrets`.

    Raises:
        GuardError: kingfisher-secret-scanner or google-re2 is missing.
        UsageError: a field is not valid.
    """

    def __init__(self, *, fields: Iterable[str] = ()) -> None:
        super().__init__(fields=fields)
        try:
            from kingfisher_sdk import Scanner
        except ImportError:
            message = "kingfisher-secret-scanner is missing: pip install 'statelog[kingfisher]'"
            raise GuardError(message) from None
        # Do not decode base64, because a decoded text has no position in the stored text. Do not deduplicate, because
        # that would hide a secret's other positions.
        self._scanner: Any = Scanner(base64=False, dedup=False)

    def may_be_in(self, encoded: bytes) -> bool:  # noqa: ARG002 - only a scan can find out
        """Return True: Kingfisher has no test that costs less than a scan."""
        return True

    def may_be_stored_in(self, record: bytes, *, any_name: bool) -> bool:  # noqa: ARG002 - as in `may_be_in`
        """Return True, as `may_be_in` does."""
        return True

    def find(self, text: bytes, *, is_text: bool = True) -> list[SecretSpan]:
        """Return the secrets in a UTF-8 text, in order and without overlaps."""
        found = super().find(text, is_text=is_text)
        known = [range(each.start, each.end) for each in found]
        return apart([*found, *(each for each in self._find_of_kingfisher(text) if not _overlaps(each, known))])

    def _find_of_kingfisher(self, text: bytes) -> Iterator[SecretSpan]:
        for each in self._scanner.scan(text):
            place, secret = each.location, each.secret.encode("utf-8", "surrogatepass")
            start = place["start_offset"]
            if text[start : start + len(secret)] != secret:  # The offset may be the offset of the whole match.
                start = text.find(secret, start)
            if each.visible and secret and start >= 0:
                yield SecretSpan(start, start + len(secret), _rule_of(each.rule_id))


def _rule_of(rule_id: str) -> str:
    """Return the name of a rule, such as `jwt` for `betterleaks.jwt`."""
    name = re.split(r"[./]", rule_id.lower())[-1]
    return _NO_LETTERS.sub("-", name)[:RULE_SIZE_MAX].strip("-") or "kingfisher"


def _overlaps(found: SecretSpan, spans: list[range]) -> bool:
    return any(found.start < span.stop and span.start < found.end for span in spans)

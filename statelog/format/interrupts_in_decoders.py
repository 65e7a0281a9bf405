"""What comes up while cbor2 decodes: damage of the bytes, or what a signal handler raised meanwhile."""

from __future__ import annotations

from decimal import InvalidOperation

import cbor2

_OF_BYTES = (ValueError, TypeError, UnicodeDecodeError, OverflowError, InvalidOperation)
"""What decoders raise of bytes that are no item of the profile: exactly these types."""


def raise_interrupt(error: BaseException) -> None:
    """Raise what cbor2 has wrapped, as it does with all that comes up in a decoder, unless it is about the bytes."""
    while isinstance(error, cbor2.CBORDecodeError) and error.__cause__ is not None:
        error = error.__cause__
    if type(error) not in _OF_BYTES and not isinstance(error, cbor2.CBORDecodeError):
        raise error from None

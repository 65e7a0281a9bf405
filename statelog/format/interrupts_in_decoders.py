"""What comes up while cbor2 decodes: damage of the bytes, a codec that fails, or an interrupt."""

from __future__ import annotations

from decimal import InvalidOperation

import cbor2

_OF_BYTES = (ValueError, TypeError, UnicodeDecodeError, OverflowError, InvalidOperation)
"""What decoders raise of bytes that are no item of the profile: exactly these types."""


def unwrapped(error: BaseException) -> BaseException:
    """Return what came up in a decoder: cbor2 wraps all of it, interrupts too.

    Raise it outside of the `except` that has caught its wrapper: otherwise its causes lead round in a circle.
    """
    while isinstance(error, cbor2.CBORDecodeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def is_about_bytes(error: BaseException) -> bool:
    """Return whether an error says that the bytes are not an item of the profile."""
    return type(error) in _OF_BYTES or isinstance(error, cbor2.CBORDecodeError)

"""The types of a thread's state and writes for type checkers.

A thread is a `Thread[S, W]`: S is the schema, and W the type of an update. Both have defaults (PEP 696), so that
`Thread[Research]` and `Thread` are valid. Python's own `Generic` has defaults since 3.13. In earlier versions, the
classes accept any number of parameters, which only type checkers count.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # Type checkers bundle typing_extensions, so it need not be installed.

    S = TypeVar("S", covariant=True, default=Any)  # noqa: PLC0105 - S as in the names of classes above
    W = TypeVar("W", contravariant=True, default=Any)  # noqa: PLC0105 - likewise

    class Typed(Generic[S]):
        """The base of classes that are generic over a schema."""

        __slots__ = ()

    class Written(Typed[S], Generic[S, W]):
        """The base of classes that are generic over a schema and its writes."""

        __slots__ = ()

else:
    from typing import TypeVar

    S = TypeVar("S")
    W = TypeVar("W")

    class Typed:
        """The base of classes that are generic over a schema."""

        __slots__ = ()
        __class_getitem__ = classmethod(types.GenericAlias)

    class Written(Typed):
        """The base of classes that are generic over a schema and its writes."""

        __slots__ = ()


D = TypeVar("D", bound=Mapping[str, Any])
"""A schema that is a TypedDict, which is also the type of the state."""
M = TypeVar("M")
"""A schema of another kind. Its class is not the type of the state, because a state may lack fields."""


class _Model(Protocol):
    @property
    def model_fields_set(self) -> set[str]: ...


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


Fields = _Model | _Dataclass
"""Dataclasses and pydantic models. With this type, only one overload matches a schema, even if W is Any."""

AnyWrite = Mapping[str, Any]
Untyped = dict[str, object]
"""The schema type of a thread without a schema, or with a schema that type checkers do not know."""

"""What type checkers know of a schema: the types of a thread's state and of its writes.

A thread is a `Thread[S, W]`: S is the schema, W what a commit takes. PEP 696 gives both a default, so that
`Thread[Research]` and `Thread` alone can be written. Python's own `Generic` has defaults from 3.13 on; before that
the classes take any number of parameters, and only type checkers count them.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # every type checker has it; it need not be installed

    S = TypeVar("S", covariant=True, default=Any)  # noqa: PLC0105 - S as in the names of classes above
    W = TypeVar("W", contravariant=True, default=Any)  # noqa: PLC0105 - likewise

    class Typed(Generic[S]):
        """Base of what is generic over a schema."""

        __slots__ = ()

    class Written(Typed[S], Generic[S, W]):
        """Base of what is generic over a schema and its writes."""

        __slots__ = ()

else:
    from typing import TypeVar

    S = TypeVar("S")
    W = TypeVar("W")

    class Typed:
        """Base of what is generic over a schema."""

        __slots__ = ()
        __class_getitem__ = classmethod(types.GenericAlias)

    class Written(Typed):
        """Base of what is generic over a schema and its writes."""

        __slots__ = ()


D = TypeVar("D", bound=Mapping[str, Any])
"""A TypedDict: the state is typed as one."""
M = TypeVar("M")
"""A class of another kind: a state has no type of it, since it may lack fields."""


class _Model(Protocol):
    @property
    def model_fields_set(self) -> set[str]: ...


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


Fields = _Model | _Dataclass
"""Classes of this kind. They are named so that of all cases only one fits a schema, also where W is Any."""

AnyWrite = Mapping[str, Any]
Untyped = dict[str, object]
"""Stands for the schema of a thread without one, or with one of which type checkers know nothing."""

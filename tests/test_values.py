"""Overwrite, Remove and Reducer behave as frozen dataclasses do, without the module `dataclasses` at start-up."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest

from statelog import reducers
from statelog.format import cbor
from statelog.format.unregistered import Unregistered
from statelog.reducers import Overwrite, Reducer, Remove
from statelog.schema import Schema

VALUES = [Overwrite([1]), Remove("x"), reducers.add, reducers.upsert("id")]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_copy_and_a_pickle_are_equal_to_the_value(value):
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert again == value
        assert repr(again) == repr(value)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_no_field_can_be_changed(value):
    name = value.__match_args__[0]
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, "other")
    with pytest.raises(FrozenInstanceError):
        delattr(value, name)


def test_values_of_different_classes_are_not_equal():
    class Other(Overwrite):
        __slots__ = ()

    assert Overwrite(1) != Other(1)
    assert Overwrite(1) != Remove(1)
    assert len({Overwrite(1), Overwrite(1), Remove(1)}) == 2


def test_the_state_of_a_pickle_is_that_of_a_frozen_dataclass_with_slots():
    assert Overwrite(5).__reduce_ex__(4)[2] == [5]
    assert Reducer("x", "y", None, "z").__reduce_ex__(4)[2] == ["x", "y", None, "z", False, False, False]


def test_schemas_are_compared_by_identity():
    schema, other = Schema.of({"a": int}), Schema.of({"a": int})
    assert schema == Schema.of(schema)
    assert schema != other
    assert len({schema, other}) == 2


def test_the_class_of_unregistered_values_has_its_former_name():
    assert cbor.Unregistered is Unregistered
    with pytest.raises(AttributeError, match="nothing"):
        cbor.nothing  # noqa: B018 - the look-up is the test

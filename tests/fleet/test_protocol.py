"""Ownership and valid records (F1 to F6), in every order of events at a small size, and with wrong rules."""

from __future__ import annotations

import pytest
import wrong_rules as wrong
from exploring import Explorer, LostError
from programs import Rules, collector, reader, writer


def explored(plans, *, rules=Rules, others=(), faults=0, clones=0, cloned=()):
    """Explore all worlds that writers with these plans can reach. Return their number."""
    programs = {name: writer(name, plan, rules) for name, plan in plans.items()}
    if "collector" in others:
        programs["collector"] = collector(rules)
    if "reader" in others:
        programs["reader"] = reader(rules)
    worlds, ends = Explorer(programs, faults=faults, clones=clones, cloned=cloned).explore()
    assert ends > 0
    return worlds


TWO_OWNERS = {"a": "baa", "b": "ta"}
THREE_OWNERS = {"a": "baa", "b": "ta", "c": "ta"}
"""Plans with three epochs. Each owner continues as if it still owned the store."""

SCENES = {
    "three writers, three epochs": (THREE_OWNERS, {}),
    "an owner that takes the store back": ({"a": "bata", "b": "taa"}, {}),
    "an owner that gives up, one that waits, one that does not": ({"a": "baf", "b": "wa", "c": "ta"}, {}),
    "an owner that parks, and takes up again": ({"a": "bapua", "b": "wa", "c": "ta"}, {}),
    "two that begin": ({"a": "baa", "b": "bata"}, {}),
    "beats": ({"a": "bhaha", "b": "tha"}, {}),
    "bases, collected": ({"a": "baiai", "b": "tai"}, {"others": ["collector"]}),
    "orphans of old epochs, collected": (TWO_OWNERS | {"c": "tai"}, {"others": ["collector"]}),
    "a reader": ({"a": "baia", "b": "tai"}, {"others": ["reader"]}),
}

LARGE = {
    "orphans of old epochs, collected", "a reader", "both are taken from", "one that parks, and takes up again"
}  # fmt: skip
"""With a fault, or a second clone, they take more than a few seconds."""


@pytest.mark.slow
@pytest.mark.parametrize("scene", [scene for scene in SCENES if scene in LARGE])
def test_acknowledged_and_served_records_are_kept_without_faults(scene):
    plans, more = SCENES[scene]
    assert explored(plans, **more) > 100


@pytest.mark.slow
@pytest.mark.parametrize("faults", [0, 1])
@pytest.mark.parametrize("scene", [scene for scene in SCENES if scene not in LARGE])
def test_acknowledged_and_served_records_are_kept(scene, faults):
    plans, more = SCENES[scene]
    assert explored(plans, **more, faults=faults) > 100


CLONED = {
    "two that append": {"a": "baa", "b": "ta"},
    "both are taken from": {"a": "bat", "b": "ta"},
    "one that gives up while another goes on": {"a": "bamf", "b": "wa"},
    "one that parks, and takes up again": {"a": "bapuam", "b": "wa"},
    "one that makes bases, and collects": {"a": "bamia", "b": "t"},
    "beats": {"a": "bhma", "b": "t"},
}


@pytest.mark.slow
@pytest.mark.parametrize("scene", CLONED)
def test_clones_made_at_any_moment_share_an_epoch_and_a_nonce(scene):
    """This happens when the snapshot of a machine is resumed twice."""
    assert explored(CLONED[scene], clones=1) > 100


@pytest.mark.soak
@pytest.mark.parametrize("how", [{"clones": 2}, {"clones": 1, "faults": 1}], ids=str)
@pytest.mark.parametrize("scene", CLONED)
def test_records_are_kept_with_clones_of_both_writers(scene, how):
    assert explored(CLONED[scene], **how) > 100


@pytest.mark.soak
@pytest.mark.parametrize("scene", SCENES)
def test_records_are_kept_with_more_faults(scene):
    plans, more = SCENES[scene]
    assert explored(plans, **more, faults=1 if scene in LARGE else 2) > 1000


WRONG = {
    wrong.NoLook: (TWO_OWNERS, {}),
    wrong.LookBefore: (TWO_OWNERS, {}),
    wrong.PlainPut: ({"a": "ba"}, {"clones": 1}),
    wrong.AnyIsMine: ({"a": "ba"}, {"clones": 1}),
    wrong.UnknownIsDone: ({"a": "ba"}, {"faults": 1}),
    wrong.NoSwap: ({"a": "bai", "b": "ta"}, {}),
    wrong.OnlyWhatIsNamed: (TWO_OWNERS, {"others": ["collector"]}),
    wrong.ListedBefore: (TWO_OWNERS, {}),
    wrong.NoCut: (TWO_OWNERS, {}),
    wrong.NoEnd: ({"a": "bamf"}, {"clones": 1}),
    wrong.AheadOfTheTail: ({"a": "bami"}, {"clones": 1}),
    wrong.OpeningRead: (TWO_OWNERS, {"others": ["reader"]}),
    wrong.NoLookAfterListing: (TWO_OWNERS, {"others": ["reader"]}),
}


@pytest.mark.parametrize("rules", WRONG, ids=lambda rules: rules.__name__)
def test_a_wrong_rule_is_detected(rules):
    plans, more = WRONG[rules]
    with pytest.raises(LostError):
        explored(plans, **more, rules=rules)


@pytest.mark.parametrize("rules", WRONG, ids=lambda rules: rules.__name__)
def test_the_correct_rules_pass_where_a_wrong_one_is_detected(rules):
    plans, more = WRONG[rules]
    explored(plans, **more)

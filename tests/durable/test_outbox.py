"""The outbox: what is emitted is kept until it leaves."""

from __future__ import annotations

from statelog import durable
from statelog.errors import UsageError, ValueTypeError
from statelog.store.board import own_board


def test_two_messages_from_the_same_place_are_both_kept(store):
    @durable.workflow
    def again(run, number):
        run.emit("turn", number)
        if number < 3:
            run.continue_as_new(number + 1)

    durable.run(store, again, 1, id="evt-1")
    assert sorted(each.value["payload"] for each in own_board(store).list("durable/outbox/**")) == [1, 2, 3]


def test_a_payload_or_topic_that_cannot_be_stored_is_refused_before_anything(store):
    @durable.workflow
    def odd(run, what):
        topic, payload = {"payload": ("a", object()), "topic": (5, 1), "empty": ("a//b", 1)}[what]
        try:
            run.emit(topic, payload)
        except (ValueTypeError, UsageError) as error:
            return type(error).__name__

    assert durable.run(store, odd, "payload", id="evt-1").value == "ValueTypeError"
    assert durable.run(store, odd, "topic", id="evt-2").value == "UsageError"
    assert durable.run(store, odd, "empty", id="evt-3").value == "UsageError"
    assert durable.steps(store, "evt-1") == []
    assert own_board(store).list("durable/outbox/**") == []

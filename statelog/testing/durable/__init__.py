"""Tools for tests of durable workflows: a skipping clock, stubs for steps, and kills at every boundary.

def test_a_trip_survives_a_kill_anywhere():
    crash_everywhere(trip, {"to": "Lisbon"}, answers={"approve-payment": True})

def test_nobody_answers(store):
    with skipping_clock(store) as clock, stub_steps({"ask_model": lambda _request: PLAN}) as stubs:
        durable.run(store, trip, {"to": "Lisbon"}, id="trip")
        clock.advance(86400)
        assert durable.run(store, trip, {"to": "Lisbon"}, id="trip").status == "failed"
        assert stubs.count("ask_model") == 1
"""

from statelog.late import listing
from statelog.testing.durable.crashes import crash_everywhere
from statelog.testing.durable.skipped_time import SkippingClock, skipping_clock
from statelog.testing.durable.stubs import Call, Stubs, stub_steps

__all__ = ["Call", "SkippingClock", "Stubs", "crash_everywhere", "skipping_clock", "stub_steps"]

__dir__ = listing(__name__)

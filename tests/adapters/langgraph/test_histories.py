"""A StatelogSaver gives the same answers as an InMemorySaver after any history."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from histories import World, ask_everything, filters, put_writes, puts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.saver import by_ids


class Patient(InMemorySaver):
    """LangGraph's saver, except that it does not follow a cycle of parents for ever."""

    def get_delta_channel_history(self, *, config, channels):
        seen = set()
        place = config["configurable"]
        entries = self.storage.get(place["thread_id"], {}).get(place["checkpoint_ns"], {})
        id = place.get("checkpoint_id")
        while id in entries and id not in seen:
            seen.add(id)
            id = entries[id][2]
        return {} if id in seen else super().get_delta_channel_history(config=config, channels=channels)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(puts | puts | put_writes, max_size=14), filters, st.sampled_from([0, by_ids.FEW_LINES]))
def test_answers_equal_those_of_an_in_memory_saver(history, wanted, few_lines):
    with (
        patch.object(by_ids, "FEW_LINES", few_lines),
        tempfile.TemporaryDirectory() as folder,
        StatelogSaver.open(Path(folder) / "s", durability="interval") as saver,
    ):
        memory = Patient()
        world = World(memory, saver)
        for step in history:
            world.apply(step)
        expected, found = ask_everything(memory, wanted), ask_everything(saver, wanted)
        for question, answer in expected.items():
            if answer != {}:  # A cycle.
                assert found[question] == answer, question
        assert saver.store.verify().ok

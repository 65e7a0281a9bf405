from __future__ import annotations

import pytest

from statelog.cli.demo import story
from statelog.cli.exits import ChildError
from statelog.errors import FormatError


def silent(_process, _event):
    """Ignore all events."""


def test_an_error_of_the_agent_keeps_its_exit_code(tmp_path):
    foreign = tmp_path / "demo.state"
    foreign.write_text("not a store")
    with pytest.raises(ChildError, match="is not a statelog store") as raised:
        story.run_agent(foreign, kill_in_step=0, narrate=silent)
    assert raised.value.exit_code == FormatError.exit_code


@pytest.mark.slow
def test_a_process_killed_in_its_first_step_has_only_the_plan(tmp_path):
    path = tmp_path / "demo.state"
    first = story.run_agent(path, kill_in_step=1, narrate=silent)
    assert [event["event"] for event in first.events] == ["opened", "planned", "inside"]
    second = story.run_agent(path, kill_in_step=2, narrate=silent)
    assert second.events[0]["next_step"] == 1
    assert [event["event"] for event in second.events] == ["opened", "step", "inside"]

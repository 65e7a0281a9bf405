"""Three agents research questions. One agent is killed while it works, but every question gets an answer.

    python -m statelog.examples.board_research [FILE]

Each agent is a process. It claims a question below ``tasks/open/``, works on it, and completes the claim. One commit
deletes the question and sets its finding below ``findings/``. Each finding wakes a summariser in its own process.

The model of ``bob`` does not answer, and bob is killed. Nobody cleans up: after the deadline of its claim, the next
agent that looks for work gets the question. If bob were only slow, its late finding would be refused.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import statelog
from statelog import reducers
from statelog.errors import LeaseLostError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from statelog import Board

QUESTIONS: Final = ("what is it", "who made it", "why", "since when", "where", "and then")
VICTIM: Final = "bob"
LEASE_S: Final = 2.0
"""How long others wait for a killed agent. An agent that works longer calls `claim.renew`."""

WAIT_S: Final = 60.0


def ask_model(name: str, question: str) -> str:
    """Stand in for a model call. For one agent, it never returns."""
    time.sleep(WAIT_S if name == VICTIM else 0.2)
    return f"{question}: {name} knows"


def research(path: str, name: str) -> None:
    """Run an agent: answer questions until none is open."""
    with statelog.open(path) as store:
        board = store.board(agent=name)
        while board.children("tasks/open/"):  # This includes questions claimed by others, which may be killed.
            claim = board.claim("tasks/open/*", lease_s=LEASE_S, wait_s=0.5)
            if claim is None:
                continue
            answer = ask_model(name, claim.value)
            try:
                claim.complete(answer, to="findings/")
            except LeaseLostError:
                print(f"{name} was too slow for {claim.key}", flush=True)


def summarise(path: str, after: int) -> None:
    """Run the summariser: add each new finding to the summary."""
    with statelog.open(path) as store:
        board = store.board(agent="summariser")
        with board.watch("findings/**", after=after) as findings:
            for count, event in enumerate(findings, start=1):
                board.update("summary", reducers.append, event.new)
                if count == len(QUESTIONS):
                    return


def follow(board: Board, after: int, agents: dict[str, SpawnProcess]) -> None:
    """Print what happens until the summary is complete. The other agents start after bob. Then bob is killed."""
    parts = 0
    with board.watch("**", after=after) as events:
        for event in events:
            print(f"{event.agent or 'the claimer':<12} {event.kind:<9} {event.key}", flush=True)
            if event.kind == "claim" and event.agent == VICTIM:
                for name, agent in agents.items():
                    if name != VICTIM:
                        agent.start()
            elif event.kind == "claim" and agents[VICTIM].exitcode is None:
                agents[VICTIM].kill()
                agents[VICTIM].join(WAIT_S)
                print(f"{VICTIM} is killed", flush=True)
            elif event.key == "summary" and event.kind == "set":
                parts += 1
            if parts == len(QUESTIONS):
                return


def main(path: str) -> None:
    """Set the questions, start all processes, and check the result."""
    context = multiprocessing.get_context("spawn")
    with statelog.open(path) as store:
        board = store.board(agent="planner")
        board.delete("summary")
        begin = store.last_lsn
        for number, question in enumerate(QUESTIONS):
            board.set(f"tasks/open/{number}", question)
        agents = {name: context.Process(target=research, args=(path, name)) for name in ("ann", VICTIM, "eve")}
        summariser = context.Process(target=summarise, args=(path, begin))
        agents[VICTIM].start()
        summariser.start()
        try:
            follow(board, begin, agents)
            for process in (*agents.values(), summariser):
                process.join(WAIT_S)
        finally:
            for process in (*agents.values(), summariser):
                if process.is_alive():
                    process.kill()
        check(board, {name: agent.exitcode for name, agent in agents.items()}, begin)


def check(board: Board, exit_codes: dict[str, int | None], begin: int) -> None:
    """Assert that each question has one finding, and that another agent has answered bob's question."""
    assert exit_codes == {"ann": 0, VICTIM: -signal.SIGKILL, "eve": 0}
    assert board.list("tasks/**") == []
    findings = board.list("findings/*")
    assert len(findings) == len(QUESTIONS)
    for entry in findings:
        assert len([each for each in board.history(entry.key) if each.version > begin]) == 1
    summary = board.get("summary")
    assert summary is not None
    assert sorted(summary.value) == sorted(entry.value for entry in findings)
    tasks = [board.history(f"tasks/open/{number}") for number in range(len(QUESTIONS))]
    begun = [task for task in tasks if any(each.agent == VICTIM and each.version > begin for each in task)]
    assert begun
    for task in begun:
        assert (task[0].kind, task[0].agent != VICTIM) == ("complete", True)
        print(f"{task[0].key} was begun by {VICTIM}, and finished by {task[0].agent}")
    print(f"{len(findings)} questions, {len(summary.value)} findings in the summary")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(str(Path(directory) / "research.state"))

"""Measures a long chat of thousands of turns with some large tool results, and a third of it in InMemorySaver."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint

from benchmarks.corpus import Corpus
from benchmarks.langgraph import savers
from benchmarks.langgraph.savers import MEMORY, OURS, SaverPeer
from benchmarks.measure import Samples, interleave
from benchmarks.result import Result, at_most

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import CheckpointMetadata

    from benchmarks.workload import Bench

_TURNS, _TURNS_IN_MEMORY = 3000, 1000
_TURN_BYTES, _RESULT_BYTES = 1024, 1_000_000
_RESULTS = 20
_GET_MAX, _PUT_MAX, _FILE_MAX = 1.5, 0.5, 1.8


class _Chat:
    """A thread of a saver, and its messages. One of `results_every` turns has a large tool result."""

    def __init__(self, peer: SaverPeer, results_every: int) -> None:
        self.peer = peer
        self.turns = self.text_bytes = 0
        self._results_every = results_every
        self._messages: list[BaseMessage] = []
        self._corpus = Corpus()
        self._config = peer.new_config()
        self._at = self._config
        self._last = empty_checkpoint()

    def add_turn(self) -> list[BaseMessage]:
        """Add a question, an answer, and perhaps a tool result. Return them."""
        number = len(self._messages)
        made: list[BaseMessage] = [
            HumanMessage(self._corpus.text(_TURN_BYTES // 2), id=f"m{number}"),
            AIMessage(self._corpus.text(_TURN_BYTES // 2), id=f"m{number + 1}"),
        ]
        self.turns += 1
        if self.turns % self._results_every == 0:
            call: Any = {"name": "search", "args": {}, "id": f"call{number}"}
            result = ToolMessage(self._corpus.text(_RESULT_BYTES), tool_call_id=call["id"], id=f"m{number}r")
            made[1:1] = [AIMessage("", tool_calls=[call], id=f"m{number}c"), result]
        self.text_bytes += sum(len(message.content) for message in made)
        self._messages = [*self._messages, *made]
        return made

    def put(self) -> None:
        """Put the present checkpoint."""
        self._last, versions = savers.next_checkpoint(self.peer.saver, self._last, {"messages": self._messages})
        metadata: CheckpointMetadata = {"source": "loop", "step": self.turns, "parents": {}}
        self._at = self.peer.saver.put(self._at, self._last, metadata, versions)

    def run_turn(self) -> None:
        """Put a turn as a graph does: the writes of its task, and then the checkpoint."""
        made = self.add_turn()
        self.peer.saver.put_writes(self._at, [("messages", made)], f"task {self.turns}")
        self.put()

    def put_turn(self) -> None:
        """Add a turn, and put the checkpoint."""
        self.add_turn()
        self.put()

    def get(self) -> None:
        """Read the last checkpoint."""
        found = self.peer.saver.get_tuple(self._config)
        assert found is not None
        assert len(found.checkpoint["channel_values"]["messages"]) == len(self._messages)


def measure_long(bench: Bench) -> Result:
    """Measure the file, and `get_tuple` and `put` at the end."""
    turns, turns_in_memory = bench.size(_TURNS, at_least=30), bench.size(_TURNS_IN_MEMORY, at_least=10)
    results_every = max(turns // _RESULTS, 1)
    with savers.opened(OURS, bench.directory, "long") as peer:
        ours = _Chat(peer, results_every)
        ours.put()
        built = Samples()
        built.take(ours.run_turn, turns)
    file_size_bytes = savers.file_size_bytes(OURS, bench.directory, "long")
    assert file_size_bytes is not None
    text_bytes = ours.text_bytes
    with ExitStack() as stack:
        ours.peer = stack.enter_context(savers.opened(OURS, bench.directory, "long"))
        theirs = _Chat(stack.enter_context(savers.opened(MEMORY, bench.directory, "long")), results_every)
        for _ in range(turns_in_memory):
            theirs.add_turn()
        theirs.put()
        chats = {OURS: ours, MEMORY: theirs}
        got = interleave({name: chat.get for name, chat in chats.items()}, count=bench.repeats * 2)
        put = interleave({name: chat.put_turn for name, chat in chats.items()}, count=bench.repeats * 2)
    what = f"a long chat: get_tuple at turn {turns:,}, relative to {MEMORY}'s at turn {turns_in_memory:,}"
    return Result(
        checks=(
            at_most(what, got[OURS].p50_us / got[MEMORY].p50_us, _GET_MAX),
            at_most("the same: put", put[OURS].p50_us / put[MEMORY].p50_us, _PUT_MAX),
            at_most(
                f"file of the long chat, relative to its content of {text_bytes / 1e6:.0f} MB",
                file_size_bytes / text_bytes,
                _FILE_MAX,
            ),
        ),
        sides=(
            built.side(f"{OURS}: a turn of a long chat", file_size_bytes=file_size_bytes),
            *(samples.side(f"{name}: get_tuple of a long chat") for name, samples in got.items()),
            *(samples.side(f"{name}: put of a long chat") for name, samples in put.items()),
        ),
        notes=(
            (
                f"long chat: {turns:,} turns of {_TURN_BYTES} bytes, and {_RESULTS} tool results of"
                f" {_RESULT_BYTES:,}; {MEMORY}: the first {turns_in_memory:,} turns of it"
            ),
        ),
    )

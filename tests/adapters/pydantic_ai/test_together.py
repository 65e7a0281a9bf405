"""Several writers of one conversation: tasks of one store, and processes."""

import asyncio
import subprocess
import sys
from collections import Counter

import pytest

pytest.importorskip("pydantic_ai.conversation_store")

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelRequest, UserPromptPart

import statelog
from statelog.adapters.pydantic_ai import StatelogConversationStore


async def add(store, name, text):
    """Add a message, again while others are faster. Return how often they were."""
    conflicts = 0
    while True:
        conversation = await store.load(name) or Conversation(conversation_id=name)
        conversation.messages.append(ModelRequest(parts=[UserPromptPart(text)]))
        try:
            await store.save(conversation)
        except ConversationConflict:
            conflicts += 1
        else:
            return conflicts


def contents(store, name):
    return [each.parts[0].content for each in asyncio.run(store.load(name)).messages]


ADDING = """
import asyncio, sys, time
from pathlib import Path

import statelog
from statelog.adapters.pydantic_ai import StatelogConversationStore
sys.path.insert(0, sys.argv[2])
from test_together import add

folder, mine, other = Path(sys.argv[1]), sys.argv[3], sys.argv[4]
with statelog.open(folder / "a.state") as held:
    store = StatelogConversationStore(held)
    (folder / mine).touch()
    while not (folder / other).exists():
        time.sleep(0.005)

    async def main():
        return sum([await add(store, "c", f"{mine}{number}") for number in range(20)])

    print(asyncio.run(main()))
"""


def test_two_processes_on_one_conversation_lose_nothing(tmp_path):
    folder = str(__file__).rpartition("/")[0]
    processes = [
        subprocess.Popen([sys.executable, "-c", ADDING, str(tmp_path), folder, *names], stdout=subprocess.PIPE)
        for names in ("ab", "ba")
    ]
    for process in processes:
        process.communicate(timeout=300)
        assert process.returncode == 0
    with statelog.open(tmp_path / "a.state") as held:
        kept = contents(StatelogConversationStore(held), "c")
        assert Counter(kept) == Counter(f"{name}{number}" for name in "ab" for number in range(20))
        for name in "ab":
            assert [each for each in kept if each[0] == name] == [f"{name}{number}" for number in range(20)]
        assert held.verify().problems == []

"""A search finds the same as a scan of the store, whatever was written, removed, or done to the index."""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import reducers

SCHEMA = {"messages": reducers.extend, "notes": dict, "last": str}
WORDS = ["red", "green", "blue", "refund", "policy"]
THREADS = ["a", "b"]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
threads = st.sampled_from(THREADS)
keys = st.sampled_from(["k/1", "k/2"])


TTL_S = 0.005
SECRET = SECRETS["github-token"](Random(52))


@cache
def an_export():
    """Return the export of a thread of another store."""
    with tempfile.TemporaryDirectory() as folder, statelog.open(Path(folder) / "s", durability="interval") as store:
        store.thread("from afar", schema=SCHEMA).commit({"last": "red policy", "notes": {"x": "blue"}})
        stream = io.BytesIO()
        store.export(stream, threads=["from afar"])
    return stream.getvalue()


def scan(value, path=()):
    """Yield (path, text) of a value, as a reader would find them one by one."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict) and "role" in value:
        yield path, value["content"]
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from scan(member, (*path, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from scan(item, (*path, position))


class SearchMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp(prefix="search-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.path = self.folder / "agent.state"
        self.store = statelog.open(self.path, durability="interval")
        self.forks = 0

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.folder)

    def thread(self, id, branch=None):
        is_gone = branch is None and id not in self.store.thread_ids()
        return self.store.thread(id, branch=branch, schema=SCHEMA, recreate=is_gone)

    def heads(self, id):
        """Yield each branch of a thread that has versions."""
        if id in self.store.thread_ids():
            for branch in self.store.thread(id).branches():
                yield self.thread(id, branch.name)

    # --- what changes the store ------------------------------------------------------------

    @rule(id=threads, said=st.lists(texts, min_size=1, max_size=3))
    def say(self, id, said):
        self.thread(id).commit({"messages": [{"role": "user", "content": text} for text in said]})

    @rule(id=threads, note=texts, name=st.sampled_from(["x", "y"]))
    def note(self, id, note, name):
        thread = self.thread(id)
        thread.commit({"notes": {**thread.state.get("notes", {}), name: {"list": [note, "red herring"], "text": note}}})

    @rule(id=threads, text=texts)
    def replace(self, id, text):
        self.thread(id).commit({"last": text})

    @rule(id=threads, data=st.data())
    def remove_messages(self, id, data):
        for thread in self.heads(id):
            count = len(thread.state.get("messages", []))
            if count:
                start = data.draw(st.integers(0, count - 1))
                stop = data.draw(st.integers(start, count))
                thread.edit(lambda state: state["messages"].__delitem__(slice(start, stop)))  # noqa: B023 - at once
            return

    @rule(id=threads, data=st.data())
    def roll_back(self, id, data):
        for thread in self.heads(id):
            versions = [each.version for each in thread.history()]
            thread.rollback(data.draw(st.sampled_from(versions)))
            return

    @rule(id=threads, data=st.data(), text=texts)
    def fork(self, id, data, text):
        for thread in self.heads(id):
            versions = [each.version for each in thread.history()]
            self.forks += 1
            fork = thread.fork(f"fork-{self.forks}", at=data.draw(st.sampled_from(versions)))
            fork.commit({"last": text})
            return

    @rule(id=threads)
    def delete(self, id):
        if id in self.store.thread_ids():
            self.store.delete_thread(id)

    @rule(source=threads)
    def copy(self, source):
        ids, target = self.store.thread_ids(), f"copy of {source}"
        if target in ids:
            self.store.delete_thread(target)
        elif source in ids:
            self.store.copy_thread(source, target, recreate=True)

    @rule(keep=st.integers(1, 3))
    def expire(self, keep):
        self.store.prune(keep_last=keep)

    @rule(key=keys, text=texts)
    def set(self, key, text):
        self.store.board().set(key, {"text": text, "more": [text]})

    @rule(key=keys)
    def unset(self, key):
        if self.store.board().get(key) is not None:
            self.store.board().delete(key)

    @rule(key=keys, text=texts)
    def set_what_expires(self, key, text):
        self.store.board().set(key, {"text": text, "more": [text]}, ttl_s=TTL_S)
        self.store.search(text)
        time.sleep(TTL_S)

    @rule()
    def import_another_store(self):
        self.store.import_(io.BytesIO(an_export()))

    @precondition(lambda _self: find_spec("re2") is not None)
    @rule(id=threads)
    def purge_a_secret(self, id):
        self.thread(id).commit({"last": f"red {SECRET}", "messages": [{"role": "user", "content": f"blue {SECRET}"}]})
        self.store.search("red")
        self.store.purge(self.store.find_secrets())
        assert self.store.search(SECRET, history=True) == []
        words = SECRET.lower().partition("_")[2].encode()
        assert not any(words in file.read_bytes().lower() for file in self.folder.glob("agent.state*"))

    # --- what changes the index -------------------------------------------------------------

    @rule()
    def compact(self):
        self.store.compact()

    @rule()
    def open_again(self):
        self.store.close()
        self.store = statelog.open(self.path, durability="interval")

    @rule(keep=st.booleans())
    def damage_index(self, keep):
        for file in self.folder.glob("agent.state-search*"):
            if keep and file.name.endswith("-shm"):
                continue  # SQLite has mapped it: the system kills a process that reads what was cut off.
            if keep:
                file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
            else:
                file.unlink()

    @rule()
    def restore_an_earlier_copy(self):
        self.store.close()
        if (self.folder / "backup").exists():
            self.path.write_bytes((self.folder / "backup").read_bytes())
        else:
            shutil.copy(self.path, self.folder / "backup")
        self.store = statelog.open(self.path, durability="interval")

    @rule(is_other_index=st.booleans())
    def move_into_a_new_store(self, is_other_index):
        """Import everything into a new store, which may have the old index."""
        stream = io.BytesIO()
        self.store.export(stream)
        self.store.close()
        for file in self.folder.glob("agent.state*"):
            if not (is_other_index and file.name == "agent.state-search"):
                file.unlink()
        (self.folder / "backup").unlink(missing_ok=True)
        self.store = statelog.open(self.path, durability="interval")
        stream.seek(0)
        self.store.import_(stream)

    @rule()
    def restore_an_earlier_index(self):
        self.store.close()
        index, saved = self.folder / "agent.state-search", self.folder / "saved-index"
        if saved.exists():
            shutil.copy(saved, index)
        elif index.exists():
            shutil.copy(index, saved)
        self.store = statelog.open(self.path, durability="interval")

    # --- what is found ----------------------------------------------------------------------

    @rule(word=st.sampled_from(WORDS))
    def a_search_finds_what_a_scan_finds(self, word):
        expected = set()
        for id in self.store.thread_ids():
            for thread in self.heads(id):
                for path, text in scan(thread.state.to_python()):
                    if word in text.split():
                        expected.add((id, thread.branch, path, text))
        for entry in self.store.board().list("k/**"):
            expected |= {(entry.key, None, path, text) for path, text in scan(entry.value) if word in text.split()}
        hits = self.store.search(word, limit=10_000)
        found = {(hit.thread or hit.key, hit.branch, hit.path, hit.text) for hit in hits}
        assert found <= expected
        assert len(found) == len(hits)
        # Branches that share a text have one hit: without the branch, both are the same.
        assert {(id, text) for id, _branch, _path, text in found} == {(id, text) for id, _, _path, text in expected}
        for id, branch in {(id, branch) for id, branch, _path, _text in expected if branch is not None}:
            of_branch = self.store.search(word, threads=id, branch=branch, limit=10_000)
            assert {(hit.path, hit.text) for hit in of_branch} == {
                (path, text) for its, of, path, text in expected if (its, of) == (id, branch)
            }
        for hit in hits:
            if hit.kind == "thread":
                state = self.store.thread(hit.thread, branch=hit.branch).at(hit.version).state.to_python()
                assert (hit.path, hit.text) in set(scan(state))

    @rule(word=st.sampled_from(WORDS))
    def a_search_of_the_history_finds_what_a_scan_of_all_versions_finds(self, word):
        expected = set()
        for id in self.store.thread_ids():
            for thread in self.heads(id):
                for checkpoint in thread.history():
                    expected |= {
                        (id, text) for _path, text in scan(checkpoint.state.to_python()) if word in text.split()
                    }
        hits = [hit for hit in self.store.search(word, history=True, limit=10_000) if hit.kind == "thread"]
        assert {(hit.thread, hit.text) for hit in hits} == expected
        for hit in hits:
            state = self.store.thread(hit.thread, branch=hit.branch).at(hit.version).state.to_python()
            assert (hit.path, hit.text) in set(scan(state))


TestSearch = pytest.mark.slow(SearchMachine.TestCase)
TestSearch.settings = settings(max_examples=settings.default.max_examples // 2, stateful_step_count=20)

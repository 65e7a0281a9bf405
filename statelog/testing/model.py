"""A model of a store in plain Python, with which tests compare stores.

The model has a store's API for contents: threads, branches, versions, tags, reducers, rollback, fork, transactions. It
encodes, shares, caches and writes nothing, so its code is easy to verify. It raises the same exceptions as a store.

The model has no times, and only the ids that callers give. Items of `upsert` channels need their keys, because a store
would give them random ones.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from statelog.errors import (
    AlreadyExistsError,
    BranchNotFoundError,
    CheckpointNotFoundError,
    ConflictError,
    ThreadNotFoundError,
)
from statelog.log.care.policies import is_one_thread, says_already, stored_pattern, with_policy, without_thread
from statelog.schema import Schema, reconcile
from statelog.testing.merge import check_write, merge_write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from statelog.log.care.policies import PolicyRow

MAIN = "main"


@dataclass(frozen=True, slots=True, eq=False)
class CheckpointModel:
    """A checkpoint. Equal checkpoints are the same object."""

    thread_id: str
    branch: str
    version: int
    kind: str
    state: Mapping[str, Any]
    parent: CheckpointModel | None
    metadata: Mapping[str, Any]
    id: str | None
    channels_written: tuple[str, ...]


@dataclass(slots=True)
class _Branch:
    name: str
    parent: str | None
    base_version: int
    own: list[CheckpointModel] = field(default_factory=list)

    @property
    def head_version(self) -> int:
        return self.base_version + len(self.own)


@dataclass(slots=True)
class _ThreadModel:
    specs: dict[str, str]
    branches: dict[str, _Branch] = field(default_factory=lambda: {MAIN: _Branch(MAIN, None, -1)})
    tags: dict[str, CheckpointModel] = field(default_factory=dict)
    ids: dict[str, CheckpointModel] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> _ThreadModel:
        branches = {
            name: _Branch(branch.name, branch.parent, branch.base_version, list(branch.own))
            for name, branch in self.branches.items()
        }
        return _ThreadModel(dict(self.specs), branches, dict(self.tags), dict(self.ids), self.policy)

    def owner(self, name: str, version: int) -> str:
        """Return the branch that a version of a branch was committed on."""
        branch = self.branches[name]
        while version <= branch.base_version and branch.parent is not None:
            branch = self.branches[branch.parent]
        return branch.name

    def version(self, name: str, version: int) -> CheckpointModel | None:
        branch = self.branches[self.owner(name, version)]
        index = version - branch.base_version - 1
        return branch.own[index] if version >= 0 and index < len(branch.own) else None


class StoreModel:
    """The model of a whole store.

    Attributes:
        last_lsn: the number of records in the log. A record is made by the beginning of a thread, an extension of a
            schema, a checkpoint, a rollback, a fork, a change of a tag or a policy, and a copy of a thread.
        threads: the contents of threads, keyed by id, in order of creation (internal).
    """

    def __init__(self) -> None:
        self.last_lsn = 0
        self.threads: dict[str, _ThreadModel] = {}
        self._policies: list[tuple[str, dict[str, Any]]] = []
        self._rows: list[PolicyRow] = []
        """The policies in the form in which a store keeps them. They show which calls write a record."""

    def thread(self, id: str, *, schema: object = None, branch: str = MAIN) -> ThreadModel:
        """Return a thread, like `Store.thread`."""
        return ThreadModel(self, id, schema, branch)

    def thread_ids(self) -> list[str]:
        """Return the ids of all threads in order of creation."""
        return list(self.threads)

    def copy(self) -> StoreModel:
        """Return an independent copy of the model."""
        copied = StoreModel()
        copied.become(self)
        return copied

    def become(self, other: StoreModel) -> None:
        """Take over the contents of another model."""
        self.last_lsn = other.last_lsn
        self.threads = {thread_id: thread.copy() for thread_id, thread in other.threads.items()}
        self._policies = list(other._policies)
        self._rows = list(other._rows)

    def set_policy(self, pattern: str, policy: dict[str, Any]) -> None:
        """Set the retention policy of existing and future threads with matching ids, like `Store.set_retention`.

        Args:
            pattern: a pattern as for file names.
            policy: a policy as in `ThreadInfo.policy`. The model does not remove versions.
        """
        self._policies.append((pattern, policy))
        is_known = is_one_thread(pattern) and pattern in self.threads
        if not is_known and not says_already(self._rows, stored_pattern(pattern), policy):
            self._rows = with_policy(self._rows, stored_pattern(pattern), policy)
            self.last_lsn += 1
        for thread_id, thread in self.threads.items():
            if fnmatchcase(thread_id, pattern) and thread.policy != policy:
                thread.policy = policy
                self.last_lsn += 1

    def begin(self, thread_id: str, specs: dict[str, str]) -> _ThreadModel:
        """Begin a thread, with the last policy that matches (internal)."""
        fitting = [policy for pattern, policy in self._policies if fnmatchcase(thread_id, pattern)]
        thread = self.threads[thread_id] = _ThreadModel(specs, policy=fitting[-1] if fitting else {})
        self._rows = without_thread(self._rows, thread_id)
        self.last_lsn += 2 if thread.policy else 1
        return thread

    def copy_thread(self, source: str, target: str) -> ThreadModel:
        """Copy a thread like `Store.copy_thread`."""
        data = self.threads.get(source)
        if data is None:
            message = f"no thread {source!r}"
            raise ThreadNotFoundError(message, thread=source)
        if target in self.threads:
            message = f"thread {target!r} exists"
            raise AlreadyExistsError(message, thread=target, name=target)
        thread = self.begin(target, dict(data.specs))
        made = _Copied(target)
        thread.branches = {
            name: replace(branch, own=[made.checkpoint(each) for each in branch.own])
            for name, branch in data.branches.items()
        }
        thread.tags = {name: made.checkpoint(each) for name, each in data.tags.items()}
        thread.ids = {id: made.checkpoint(each) for id, each in data.ids.items()}
        versions = sum(len(branch.own) for branch in thread.branches.values())
        self.last_lsn += versions + len(thread.branches) - 1 + len(thread.tags) + 1
        return self.thread(target)

    @contextmanager
    def transaction(self) -> Iterator[StoreModel]:
        """Undo everything in the `with` block if it raises, like `Store.transaction`."""
        before = self.copy()
        try:
            yield self
        except BaseException:
            self.become(before)
            raise


class _Copied:
    """Copies checkpoints of one thread to another, each one once."""

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._made: dict[int, CheckpointModel] = {}

    def checkpoint(self, source: CheckpointModel) -> CheckpointModel:
        line = [source]
        while (parent := line[-1].parent) is not None and id(parent) not in self._made:
            line.append(parent)
        for each in reversed(line):
            if id(each) not in self._made:
                parent = None if each.parent is None else self._made[id(each.parent)]
                self._made[id(each)] = replace(each, thread_id=self._thread_id, parent=parent)
        return self._made[id(source)]


class ThreadModel:
    """One branch of a thread of a model, like `Thread`."""

    def __init__(self, model: StoreModel, thread_id: str, schema: object, branch: str) -> None:
        self.id = thread_id
        self.branch = branch
        self._model = model
        self._schema = Schema.of(schema)
        self._is_given = schema is not None
        data = self._data()
        if data is not None and self._is_given:
            reconcile(thread_id, data.specs, self._schema)
        if branch != MAIN:
            self._require()

    # --- looking ------------------------------------------------------------------

    def _data(self) -> _ThreadModel | None:
        return self._model.threads.get(self.id)

    def _require(self) -> _ThreadModel:
        data = self._data()
        if data is None and self.branch == MAIN:
            message = f"no thread {self.id!r}"
            raise ThreadNotFoundError(message, thread=self.id)
        if data is None or self.branch not in data.branches:
            message = f"no branch {self.branch!r}"
            raise BranchNotFoundError(message, thread=self.id, branch=self.branch)
        return data

    @property
    def version(self) -> int:
        """The head's version, -1 before the first commit."""
        data = self._data()
        return -1 if data is None else data.branches[self.branch].head_version

    @property
    def head(self) -> CheckpointModel | None:
        """The last checkpoint."""
        data = self._data()
        return None if data is None else data.version(self.branch, self.version)

    @property
    def state(self) -> Mapping[str, Any]:
        """The head's channels."""
        head = self.head
        return {} if head is None else head.state

    def at(self, target: int | str | CheckpointModel) -> CheckpointModel:
        """Return a checkpoint by version (-1 is the head, -2 its predecessor), tag, caller's id, or checkpoint."""
        data = self._require()
        found: CheckpointModel | None
        if isinstance(target, CheckpointModel):
            found = target
        elif isinstance(target, str):
            found = data.tags.get(target) or data.ids.get(target)
        else:
            version = target + self.version + 1 if target < 0 else target
            found = data.version(self.branch, version) if version >= 0 else None
        if found is None:
            message = f"no checkpoint {target!r}"
            raise CheckpointNotFoundError(message, thread=self.id, branch=self.branch, target=target)
        return found

    def history(self, limit: int | None = None, *, before: int | None = None) -> list[CheckpointModel]:
        """Return checkpoints, newest first."""
        last = self.version if before is None else min(self.version, before - 1)
        found = [self.at(version) for version in range(last, -1, -1)]
        return found if limit is None else found[:limit]

    def branches(self) -> list[tuple[str, str | None, int, int]]:
        """Return (name, parent, base version, head version) of the branches in order of creation."""
        data = self._data()
        branches = [] if data is None else data.branches.values()
        return [(each.name, each.parent, each.base_version, each.head_version) for each in branches]

    def tags(self) -> dict[str, CheckpointModel]:
        """Return the tags."""
        data = self._data()
        return {} if data is None else dict(data.tags)

    def specs(self) -> dict[str, str]:
        """Return the reducers of the thread, keyed by channel."""
        data = self._data()
        return {} if data is None else dict(data.specs)

    def policy(self) -> dict[str, Any]:
        """Return the thread's retention policy, or an empty one."""
        data = self._data()
        return {} if data is None else data.policy

    def checkout(self, branch: str) -> ThreadModel:
        """Return the thread on the given branch."""
        return ThreadModel(self._model, self.id, self._schema if self._is_given else None, branch)

    # --- writing ------------------------------------------------------------------

    def commit(
        self,
        *writes: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        id: str | None = None,
        durable: bool | None = None,  # noqa: ARG002 - a model is not on a disk
    ) -> CheckpointModel:
        """Merge writes into the head's channels."""
        data = self._data()
        if data is not None:
            self._require()
        pairs = self._checked_pairs(writes)
        self._check_version(expected_version)
        if data is not None and id in data.ids:
            message = f"id {id!r} is taken"
            raise AlreadyExistsError(message, thread=self.id, name=id)
        state = self._merged(pairs)
        data = self._ensure()
        made = CheckpointModel(
            self.id,
            self.branch,
            self.version + 1,
            "commit",
            state,
            self.head,
            dict(metadata or {}),
            id,
            tuple(sorted({channel for channel, _value in pairs})),
        )
        return self._append(data, made)

    def _checked_pairs(self, writes: tuple[Mapping[str, Any], ...]) -> list[tuple[str, Any]]:
        schema = self._effective_schema()
        pairs = [(channel, copy.deepcopy(value)) for write in writes for channel, value in write.items()]
        for channel, value in pairs:
            check_write(schema.reducer(channel), channel, value)
        return pairs

    def _merged(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        schema = self._effective_schema()
        state = dict(self.state)
        for channel, value in pairs:
            state[channel] = merge_write(schema.reducer(channel), state, channel, value)
        return state

    def _effective_schema(self) -> Schema:
        data = self._data()
        return self._schema if self._is_given or data is None else Schema.from_specs(data.specs)

    def _check_version(self, expected: int | None) -> None:
        if expected is not None and expected != self.version:
            message = f"at version {self.version}, not {expected}"
            raise ConflictError(message, thread=self.id, expected_version=expected, actual_version=self.version)

    def _ensure(self) -> _ThreadModel:
        """Return the thread's data. Begin the thread or extend its schema if necessary."""
        data = self._data()
        specs = self._schema.specs()
        if data is None:
            data = self._model.begin(self.id, specs)
        elif not specs.keys() <= data.specs.keys():
            data.specs.update(specs)
            self._model.last_lsn += 1
        return data

    def _append(self, data: _ThreadModel, made: CheckpointModel) -> CheckpointModel:
        data.branches[made.branch].own.append(made)
        if made.id is not None:
            data.ids[made.id] = made
        self._model.last_lsn += 1
        return made

    def rollback(
        self,
        target: int | str | CheckpointModel,
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> CheckpointModel:
        """Append a checkpoint with the state of an earlier checkpoint, which is its parent."""
        data = self._require()
        found = self.at(target)
        self._check_version(expected_version)
        made = CheckpointModel(
            self.id, self.branch, self.version + 1, "rollback", found.state, found, dict(metadata or {}), None, ()
        )
        return self._append(data, made)

    def fork(
        self,
        name: str,
        *,
        at: int | str | CheckpointModel | None = None,
        update: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> ThreadModel:
        """Begin a branch, and commit `update` to it, if given. If the commit is refused, there is no branch."""
        if update is not None:
            self._checked_pairs((update,))
        data = self._require()
        base = self.at(self.version if at is None else at)
        if name in data.branches:
            message = f"branch {name!r} exists"
            raise AlreadyExistsError(message, thread=self.id, name=name)
        is_on_line = data.version(self.branch, base.version) is base
        parent = self.branch if is_on_line else base.branch
        with self._model.transaction():
            data = self._require()
            data.branches[name] = _Branch(name, parent, base.version)
            self._model.last_lsn += 1
            forked = self.checkout(name)
            if update is not None:
                forked.commit(update, metadata=metadata)
        return forked

    def tag(self, name: str, target: int | str | CheckpointModel | None = None) -> CheckpointModel:
        """Name a checkpoint."""
        data = self._require()
        data.tags[name] = found = self.at(self.version if target is None else target)
        self._model.last_lsn += 1
        return found

    def untag(self, name: str) -> None:
        """Remove a tag."""
        data = self._require()
        if name not in data.tags:
            message = f"no tag {name!r}"
            raise CheckpointNotFoundError(message, thread=self.id, branch=self.branch, target=name)
        del data.tags[name]
        self._model.last_lsn += 1

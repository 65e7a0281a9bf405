"""Where a thread is in a store: its numbers, looked up once, and its schema, compared with what is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import BranchNotFoundError, SchemaError, ThreadNotFoundError, UsageError
from statelog.log import operations as writer
from statelog.log.events import MAIN
from statelog.log.kinds.entries import OWN_IDS
from statelog.schema import Schema, reconcile
from statelog.store.arguments import check_flag
from statelog.store.writes import check_thread_id

if TYPE_CHECKING:
    from statelog.log.batch import Batch
    from statelog.log.view import View
    from statelog.store.session import Session


class Located:
    """One branch of one thread, found or still to be made."""

    def __init__(
        self,
        session: Session,
        thread_id: str,
        schema: object = None,
        branch: str | None = None,
        *,
        reborn: bool = False,
    ) -> None:
        check_thread_id(thread_id)
        check_flag("reborn", reborn)
        if thread_id in OWN_IDS:
            message = f"thread {thread_id!r} has the records of the board: use store.board()"
            raise UsageError(message, argument="thread id", value=thread_id)
        self._session = session
        self._id = thread_id
        self._follows = branch is None
        self._branch = branch = MAIN if branch is None else branch
        self._given = Schema.of(schema)
        self._schema = self._given
        self._has_schema = schema is not None
        self._missing_specs: dict[str, str] = {}
        self._lsn: int | None = None
        self._branch_number: int | None = None
        self._has_branches = False
        self._may_be_reborn = reborn
        with session.read() as view:
            self._resolve(view)
        if reborn and self._lsn is not None:
            message = f"thread {thread_id!r} is not deleted: an id is begun anew when its thread has gone"
            raise UsageError(message, argument="reborn", thread=thread_id)
        if branch != MAIN and self._branch_number is None:
            raise no_branch(thread_id, branch)

    def _resolve(self, view: View) -> bool:
        """Learn the thread's and branch's numbers; return whether they exist."""
        if self._lsn is not None and self._session.is_final:
            if not view.is_alive(self._lsn):
                return False  # and does not come back, whatever begins under its id
            if self._branch_number is not None:
                return True
        lsn = view.thread_lsn(self._id)
        if lsn is None:
            self._missing_specs = self._given.specs()
            return False
        row = view.thread(lsn)
        if self._has_schema:
            self._missing_specs = reconcile(self._id, row.specs, self._given)
        else:
            self._schema = Schema.from_specs(row.specs)
            self._missing_specs = {}
        self._lsn = lsn
        self._has_branches = row.branch_count > 1
        self._branch_number = number = view.branch_number(lsn, self._branch)
        return number is not None

    def _ids(self, view: View) -> tuple[int, int]:
        if not self._resolve(view):
            self._check_not_deleted(view)
            if self._lsn is None:
                if view.is_deleted(self._id):
                    raise writer.deleted_error(self._id)
                message = f"no thread {self._id!r} in this store"
                raise ThreadNotFoundError(message, thread=self._id)
            raise no_branch(self._id, self._branch)
        assert self._lsn is not None
        assert self._branch_number is not None
        return self._lsn, self._branch_number

    def _ids_if_any(self, view: View) -> tuple[int, int] | None:
        return self._ids(view) if self._resolve(view) else None

    def _ids_at_commit(self, batch: Batch) -> tuple[int, int]:
        """Return (thread, branch); whose head is remembered from the last commit is there."""
        if self._session.is_final and (self._lsn, self._branch_number) in batch.memory.heads:
            assert self._lsn is not None
            assert self._branch_number is not None
            return self._lsn, self._branch_number
        return self._ids(batch.view)

    def _ids_for_writing(self, batch: Batch) -> tuple[int, int]:
        """Return (thread, branch), the thread created and its schema recorded if need be."""
        if self._session.is_final and not self._missing_specs and self._branch_number is not None:
            assert self._lsn is not None
            row = batch.memory.rows.get(self._lsn)
            if self._schema.is_open and (row is None or row.specs or batch.index):
                self._check_still_open(batch)
            return self._lsn, self._branch_number
        self._check_not_deleted(batch.view)
        # Nothing is remembered here: the batch may come to nothing, or be run again.
        lsn = batch.view.thread_lsn(self._id)
        if lsn is None:
            if self._branch != MAIN:
                raise no_branch(self._id, self._branch)
            return writer.create_thread(batch, self._id, self._given.specs(), anew=self._may_be_reborn), 0
        if self._has_schema:
            added = reconcile(self._id, batch.view.thread(lsn).specs, self._given)
            if added:
                writer.extend_schema(batch, lsn, added)
        number = batch.view.branch_number(lsn, self._branch)
        if number is None:
            raise no_branch(self._id, self._branch)
        return lsn, number

    def _check_not_deleted(self, view: View) -> None:
        """Refuse to go on if the thread that this object was of was deleted: another may have its id by now."""
        if self._lsn is not None and self._session.is_final and not view.is_alive(self._lsn):
            raise writer.deleted_error(self._id)

    def _check_still_open(self, batch: Batch) -> None:
        """Refuse to go past reducers that the thread was given since this object was made."""
        assert self._lsn is not None
        row = batch.find_thread(self._lsn)
        if row is not None and (specs := row.specs):
            message = f"thread {self._id!r} has a schema by now: get it anew with Store.thread"
            raise SchemaError(message, thread=self._id, stored=dict(specs), given={})

    def _learn(self) -> None:
        """Remember what a write has created."""
        self._branch_number = None
        self._may_be_reborn = False
        with self._session.read() as view:
            self._resolve(view)


def no_branch(thread_id: str, branch: str) -> BranchNotFoundError:
    """Return the BranchNotFoundError for a branch of a thread."""
    message = f"thread {thread_id!r} has no branch {branch!r}"
    return BranchNotFoundError(message, thread=thread_id, branch=branch)

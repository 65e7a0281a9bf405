"""The class `Memory`, which has the facts and sessions of a scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from statelog import reducers
from statelog.errors import UsageError
from statelog.log.times import now_us
from statelog.memory.embedder import Embedder
from statelog.memory.erasure import forget_scope, sweep_sessions
from statelog.memory.recall import DEPTH_MIN, FactCache, FactsAtTime, RecallQuestion, joined
from statelog.memory.scopes import FACTS, ROOT, check_scope, fact_key
from statelog.memory.sessions import Session
from statelog.memory.timeline import FAR_US, Fact, check_filter, check_moment, fact_of, read_facts, spans
from statelog.memory.tools import make_tool
from statelog.store.arguments import check_flag
from statelog.store.search import search_items
from statelog.store.session import session_of
from statelog.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from statelog.memory.erasure import ForgetReport
    from statelog.memory.timeline import Stored
    from statelog.memory.tools import Action, Framework


class Memory:
    """Facts about a scope, such as a user, and the sessions of that scope. Many threads and processes may share it.

    A fact has a key, a text, and the time from which it is true. A new fact under a key ends the previous fact but
    deletes nothing: `at=` selects the facts that were true at a time, and `known_at=` those that were known at a time.
    Facts without a key do not replace each other. The facts are entries of the board below `memory/SCOPE/`, so they can
    be watched, exported and rolled back with the board.
    """

    def __init__(self, store: Store, scope: str, *, embed: Any = None, dims: int | None = None) -> None:
        """Open the memory of a scope. Nothing is written.

        Args:
            store: an open store, which the caller closes.
            scope: a path such as `user/42`. A memory never sees other scopes, not even those below its own.
            embed: a function that takes a list of texts and returns a list of vectors, or an object with
                `embed_documents`. Without `embed`, `recall` finds facts by their text alone.
            dims: the size of the vectors.

        Raises:
            UsageError: an argument is not valid, such as a scope with a pattern or an empty part.
            ModuleNotFoundError: `embed` is given, and numpy is missing.
        """
        if not isinstance(store, Store):
            message = f"store must be a store that statelog.open returned, not {type(store).__name__}"
            raise UsageError(message, argument="store", value=store)
        self._scope = check_scope(scope)
        self._store = store
        self._embedder = None if embed is None else Embedder(store, embed, dims)
        """The object that makes vectors, or None without `embed`."""
        self._board = store.board()
        np = None if self._embedder is None else self._embedder.np
        self._cache = FactCache(store, f"{ROOT}{scope}/{FACTS}", np, dims or 0)

    def __repr__(self) -> str:
        return f"<Memory of {self._scope!r}>"

    @property
    def scope(self) -> str:
        """The scope of this memory. It cannot be changed."""
        return self._scope

    @property
    def store(self) -> Store:
        """The store that has this memory."""
        return self._store

    # --- facts ------------------------------------------------------------------------

    def remember(
        self,
        text: str,
        *,
        key: str | None = None,
        source: str | None = None,
        metadata: dict[str, Any] | None = None,
        pinned: bool = False,
        valid_from: date | None = None,
        valid_until: date | None = None,
    ) -> Fact:
        """Record a fact in one commit. Its vector is made before the commit begins.

        Args:
            text: the fact, as a sentence.
            key: the subject of the fact, such as `diet`. The fact ends the previous fact of this key. Without a key,
                the fact's id becomes its key.
            source: the origin of the fact.
            metadata: plain values keyed by name, for filters.
            pinned: whether `recall` always returns the fact, and `pinned` lists it.
            valid_from: a timezone-aware datetime, or a date for the beginning of the day in UTC. By default, the time
                of the recording. The fact is true until the next fact of its key begins, even if the next fact is
                recorded later.
            valid_until: the time from which the fact is no longer true, if that is known.

        Raises:
            UsageError: an argument is not valid, such as an empty text or a datetime that is not timezone-aware.
            EmbeddingError: `embed` raised an exception, or returned something other than a vector of `dims` numbers.
            ValueTypeError, LimitError: the fact cannot be stored.
            SecretError, CheckError: the guard of the store refuses the fact.

        If an error is raised, nothing is stored.
        """
        place, stored = self._prepared(
            text,
            key=key,
            source=source,
            metadata=metadata,
            pinned=pinned,
            valid_from=valid_from,
            valid_until=valid_until,
        )
        return self._store_fact(place, stored, None if self._embedder is None else self._embedder.vector(text))

    def _prepared(self, text: str, *, key: str | None, pinned: bool, **more: Any) -> tuple[str, Stored]:
        """Check the arguments of `remember`. Return the key of the entry, and the fact without its vector and time."""
        stored = _checked(text, key, pinned=pinned, **more)
        return fact_key(self._scope, key or stored["id"]), stored

    def _store_fact(self, place: str, stored: Stored, vector: Any) -> Fact:
        """Append a fact to its entry. Return the fact as it was stored."""
        if vector is not None:
            stored["vector"] = vector.tobytes()
        stored["known"] = now_us()
        entry = self._board.update(place, reducers.append, stored)
        key = place.removeprefix(f"{ROOT}{self._scope}/{FACTS}")
        found = next((each for each in spans(read_facts(entry.value)) if each[0]["id"] == stored["id"]), None)
        if found is not None:
            return fact_of(key, *found)
        # A check has replaced the fact, or all facts of the entry, by a placeholder.
        hidden = entry.value[-1] if isinstance(entry.value, list) else entry.value
        return fact_of(key, {"from": stored["known"], **stored, "text": hidden}, stored.get("until") or FAR_US)

    def get(self, key: str, *, at: date | None = None, known_at: date | None = None) -> Fact | None:
        """Return the fact of a key that is true now, or None.

        Args:
            key: the key.
            at: return the fact that was true at this time, instead of now.
            known_at: consider only facts that were recorded by this time.

        Raises:
            UsageError: an argument is not valid.
            CheckError: a check of the guard refuses the read.
        """
        facts = self._read(key)
        at_us, known_us = _moments(at, known_at)
        found = FactsAtTime({key: facts}, at_us, known_us).true(key)
        return None if found is None else fact_of(key, *found)

    def history(self, key: str) -> list[Fact]:
        """Return all facts of a key, the last recorded one first. Raises the errors of `get`."""
        facts = self._read(key)
        ends = {each["id"]: (each, end_us) for each, end_us in spans(facts)}
        return [fact_of(key, *ends[each["id"]]) for each in reversed(facts)]

    def facts(
        self,
        *,
        source: str | None = None,
        metadata: dict[str, Any] | None = None,
        at: date | None = None,
        known_at: date | None = None,
    ) -> list[Fact]:
        """Return all facts that are true, sorted by key. The arguments are as for `recall`."""
        return self._list(check_filter(source, metadata), *_moments(at, known_at))

    def pinned(self) -> list[Fact]:
        """Return the pinned facts that are true now, sorted by key. They belong in every prompt."""
        return self._list(lambda stored: bool(stored.get("pinned")), *_moments(None, None))

    def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        source: str | None = None,
        metadata: dict[str, Any] | None = None,
        at: date | None = None,
        known_at: date | None = None,
    ) -> list[Fact]:
        """Return the pinned facts, and then the facts that match a question best.

        The order joins the ranking of the text index and, with `embed`, the ranking of the vectors by reciprocal rank
        (`RANK_CONSTANT`). Only facts that are true now are found, unless `at` is given. Forgotten facts are never
        found.

        Args:
            query: the question. Any text is allowed.
            limit: the maximum number of facts. Pinned facts count, but all of them are returned even if there are more.
            source: return only facts with this source.
            metadata: return only facts whose metadata has these values.
            at: as for `get`.
            known_at: as for `get`.

        Raises:
            UsageError: an argument is not valid, such as an empty query.
            EmbeddingError: as for `remember`.
        """
        question = self._question(query, limit=limit, source=source, metadata=metadata, at=at, known_at=known_at)
        return self._recall_question(question, None if self._embedder is None else self._embedder.vector(query))

    def _question(
        self,
        query: str,
        *,
        limit: int,
        source: str | None,
        metadata: dict[str, Any] | None,
        at: date | None,
        known_at: date | None,
    ) -> RecallQuestion:
        """Check the arguments of `recall`, and convert them to a question."""
        _check_text("query", query)
        if type(limit) is not int or limit < 1:
            message = f"limit must be a positive int, not {limit!r}"
            raise UsageError(message, argument="limit", value=limit)
        return RecallQuestion(query, limit, check_filter(source, metadata), *_moments(at, known_at))

    def _recall_question(self, question: RecallQuestion, vector: Any) -> list[Fact]:
        """Answer a question with its vector, which is None without `embed`."""
        unit = None if vector is None or self._embedder is None else self._embedder.unit(vector)
        limit, fits, depth = question.limit, question.fits, max(DEPTH_MIN, 4 * question.limit)
        answer = self._cache.ask(unit, 2 * depth)
        moment = FactsAtTime(answer.facts, question.at_us, question.known_us)
        session, prefix = session_of(self._store), self._cache.prefix

        def choose(found: Iterator[tuple[str, int]]) -> list[str]:
            return moment.chosen(answer.confirmed(found), fits, depth)

        rankings = [search_items(session, question.query, prefix, choose, enough=limit, first=depth)]
        if unit is not None:
            rankings.append(moment.chosen(answer.nearest, fits, depth))
        scores = joined(rankings)
        pinned = [key for key, stored, _end_us in moment.all(answer.pinned) if stored.get("pinned") and fits(stored)]
        chosen = [*pinned, *(key for key in scores if key not in pinned)][: max(limit, len(pinned))]
        true = [(key, moment.true(key)) for key in chosen]
        return [fact_of(key, *each, scores.get(key)) for key, each in true if each is not None]

    def forget(self, key: str) -> bool:
        """Remove a fact, its history and its vectors. Return True if the fact existed.

        After that, no read or search of the store finds the fact. `Store.compact` removes its bytes from the files.

        Raises:
            UsageError: `key` is not a valid key.
        """
        return bool(self._board.erase(fact_key(self._scope, key)))

    @staticmethod
    def forget_scope(store: Store, scope: str) -> ForgetReport:
        """Remove everything that belongs to a scope and to the scopes below it. Return a report of what was removed.

        A scope has facts, sessions, entries, threads, runs, and items of LangGraph's store, as GUIDE.md explains. If
        the process dies during the call, repeat the call to finish the work. `Store.compact` removes the bytes.

        Raises:
            UsageError: `scope` is not a valid scope.
        """
        return forget_scope(store, check_scope(scope))

    # --- sessions ---------------------------------------------------------------------

    def session(self, id: str, *, ttl_s: float | None = None) -> Session:
        """Return a session of the scope: the messages of one conversation. Nothing is written before its first turn.

        Args:
            id: the id of the session; one part of a path.
            ttl_s: the time in seconds after which the session expires, counted from its last use. None for never.

        Raises:
            UsageError: an argument is not valid.
        """
        return Session(self._store, self._scope, id, ttl_s)

    def sweep(self) -> list[str]:
        """Delete the expired sessions of the scope and of the scopes below it. Return their thread ids.

        Reads and writes treat an expired session as deleted anyway. This method only frees the space of unused
        sessions.
        """
        return sweep_sessions(self._store, self._scope)

    # --- tools ------------------------------------------------------------------------

    def tool(self, action: Action = "search", *, framework: Framework = "langgraph") -> Any:
        """Return a tool that lets a model search or change the memory.

        Args:
            action: `search` for a tool that recalls facts; `manage` for one that remembers and forgets facts.
            framework: `langgraph` for a `StructuredTool` of LangChain; `openai` for a `FunctionTool` of the OpenAI
                Agents SDK; `json` for a `MemoryTool`, which has a JSON schema and is called with a model's arguments.

        Raises:
            UsageError: an argument is not valid.
            ModuleNotFoundError: the framework is not installed.
        """
        return make_tool(self, action, framework)

    # --- reading ----------------------------------------------------------------------

    def _read(self, key: str) -> list[Stored]:
        entry = self._board.get(fact_key(self._scope, key))
        return [] if entry is None else read_facts(entry.value)

    def _list(self, fits: Any, at_us: int, known_us: int | None) -> list[Fact]:
        facts = self._cache.read()
        true = FactsAtTime(facts, at_us, known_us).all(facts)
        return [fact_of(key, stored, end_us) for key, stored, end_us in true if fits(stored)]


def _moments(at: date | None, known_at: date | None) -> tuple[int, int | None]:
    at_us = now_us() if at is None else check_moment("at", at)
    return at_us, None if known_at is None else check_moment("known_at", known_at)


def _check_text(argument: str, text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        message = f"{argument} must be a str with at least one visible character, not {text!r}"
        raise UsageError(message, argument=argument, value=text)


def _checked(
    text: str,
    key: str | None,
    *,
    source: str | None,
    metadata: dict[str, Any] | None,
    pinned: bool,
    valid_from: date | None,
    valid_until: date | None,
) -> Stored:
    """Check the arguments of a fact, and return the fact to store, without its recording time. Raises UsageError."""
    _check_text("text", text)
    if key is not None:
        _check_text("key", key)
    check_filter(source, metadata)
    check_flag("pinned", pinned)
    stored: Stored = {"id": uuid4().hex, "text": text}
    if valid_from is not None:
        stored["from"] = check_moment("valid_from", valid_from)
    if valid_until is not None:
        stored["until"] = check_moment("valid_until", valid_until)
        begins_us = stored.get("from", now_us())
        if stored["until"] <= begins_us:
            message = f"valid_until {valid_until!r} is not later than the time from which the fact is true"
            raise UsageError(message, argument="valid_until", value=valid_until)
    if source is not None:
        stored["source"] = source
    if metadata:
        stored["metadata"] = dict(metadata)
    if pinned:
        stored["pinned"] = True
    return stored

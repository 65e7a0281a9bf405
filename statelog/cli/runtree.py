"""A run as a tree of its steps, gates and child runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.cli.documents import gate_document, run_document, step_document
from statelog.cli.text import count, escape
from statelog.cli.values import render, render_pairs
from statelog.errors import RunNotFoundError

if TYPE_CHECKING:
    from rich.tree import Tree

    from statelog import Store
    from statelog.cli.output import Output
    from statelog.durable import Gate, RunInfo, StepInfo

_VALUE_CHARACTERS = 200
_VALUE_FULL_CHARACTERS = 1 << 40
_TRACEBACK_LINES = 20
"""The number of lines at the end of a traceback that are shown."""
_WIDTH_FULL = 1 << 40
_DEPTH_MAX = 8
"""The maximum depth of nested child runs. Only the ids of deeper runs are shown."""

_WAITING = ("gate", "recv", "sleep", "child")


def outcome_of(info: RunInfo, output: Output, characters_max: int) -> str:
    """Return the outcome of a run, or the event that it waits for, as text for a person."""
    if info.status == "completed":
        return render(info.value, characters_max)
    if info.status == "suspended":
        until = "" if info.due is None else f", until {output.time(info.due)}"
        return f"waits for {', '.join(info.waiting_for)}{until}"
    if info.error is not None:
        return info.error
    if info.waiting_for:
        return f"behind {', '.join(info.waiting_for)}"
    return "" if info.due is None else f"not before {output.time(info.due)}"


def tree_document(store: Store, run: str) -> dict[str, Any]:
    """Return the JSON document of `runs show`. Raises RunNotFoundError."""
    return _document(store, run, frozenset())


def _document(store: Store, run: str, above: frozenset[str]) -> dict[str, Any]:
    from statelog import durable

    steps = durable.steps(store, run)
    children = []
    for child in _children(steps, above | {run}):
        try:
            children.append(_document(store, child, above | {run}))
        except RunNotFoundError:
            continue
    return {
        **run_document(durable.get_run(store, run)),
        "steps": [step_document(each) for each in steps],
        "gates": [gate_document(each) for each in durable.gates(store, run=run)],
        "children": children,
    }


def _children(steps: list[StepInfo], above: frozenset[str]) -> list[str]:
    """Return the ids of the child runs of a run, except its own ancestors."""
    return [each.child for each in steps if each.child is not None and each.child not in above]


# --- drawn -----------------------------------------------------------------------------------


def draw_run(output: Output, store: Store, run: str, *, is_full: bool) -> None:
    """Write a run as a tree. Raises RunNotFoundError."""
    _Drawing(output, store, is_full=is_full).draw(run)


class _Drawing:
    def __init__(self, output: Output, store: Store, *, is_full: bool) -> None:
        self._output, self._store, self._is_full = output, store, is_full
        self._characters_max = _VALUE_FULL_CHARACTERS if is_full else _VALUE_CHARACTERS

    def draw(self, run: str) -> None:
        """Write the tree of a run."""
        from rich.tree import Tree

        class Plain(Tree):
            TREE_GUIDES = [Tree.ASCII_GUIDES] * len(Tree.TREE_GUIDES)

        from statelog import durable

        info = durable.get_run(self._store, run)
        tree = (Tree if self._output.can_draw else Plain)(self._text(_title(info), "bold"))
        self._fill(tree, info, frozenset((run,)))
        if self._is_full:
            self._output.console.width = _WIDTH_FULL
        self._output.console.print(tree, soft_wrap=self._is_full)

    def _text(self, text: str, style: str = "") -> Any:
        from rich.text import Text

        return Text(escape(text), style=style, no_wrap=True, overflow="ignore" if self._is_full else "ellipsis")

    def _fill(self, tree: Tree, info: RunInfo, above: frozenset[str]) -> None:
        from statelog import durable
        from statelog.durable.keys import place_of_gate

        for name, text in self._facts(info):
            tree.add(self._text(f"{name}  {text}", "dim" if name in ("began", "thread", "arguments") else ""))
        steps = durable.steps(self._store, info.id)
        gates = {place_of_gate(each.id): each for each in durable.gates(self._store, run=info.id)}
        for step in steps:
            gate = gates.get(step.place) if step.kind == "gate" else None
            line = tree.add(self._text(self._line(step, gate), "red" if step.status == "failed" else ""))
            if step.child is not None:
                self._add_child(line, step.child, above)
        for each in info.parked:
            tree.add(self._text(f"not undone  {each}", "red"))
        if info.has_ended:
            what = "returned" if info.status == "completed" else info.status
            when = "" if info.ended is None else f"{self._output.time(info.ended)}  "
            end = tree.add(self._text(f"{what}  {when}{outcome_of(info, self._output, self._characters_max)}"))
            if info.traceback is not None:
                end.add(self._traceback(info.traceback))

    def _traceback(self, traceback: str) -> Any:
        lines = traceback.rstrip("\n").split("\n")
        if not self._is_full and len(lines) > _TRACEBACK_LINES:
            left_out = f"[... {len(lines) - _TRACEBACK_LINES:,} lines are left out: --full shows them ...]"
            lines = [left_out, *lines[-_TRACEBACK_LINES:]]
        text = self._text("", "dim")
        text.append("\n".join(map(escape, lines)))
        return text

    def _add_child(self, tree: Tree, child: str, above: frozenset[str]) -> None:
        from statelog import durable

        try:
            info = durable.get_run(self._store, child)
        except RunNotFoundError:
            tree.add(self._text(f"{child}  was removed"))
            return
        below = tree.add(self._text(_title(info), "bold"))
        if child not in above and len(above) <= _DEPTH_MAX:
            self._fill(below, info, above | {child})

    def _facts(self, info: RunInfo) -> list[tuple[str, str]]:
        where = info.thread if info.branch == "main" else f"{info.thread}, branch {info.branch}"
        taken = f", taken up {count(info.attempts, 'time')}" if info.attempts > 1 else ""
        began = f"{self._output.time(info.created)}, queue {info.queue}{taken}"
        facts = [("thread", where), ("began", began)]
        if info.parent is not None:
            facts.append(("child of", info.parent))
        if info.forked_from is not None:
            where = "after its last call" if info.forked_at is None else f"before its call at {info.forked_at}"
            facts.append(("forked from", f"{info.forked_from}, {where}"))
        if info.replaced:
            facts.append(("replaced", render_pairs(info.replaced, self._characters_max)))
        if info.args or info.kwargs:
            parts = [render(each, self._characters_max) for each in info.args]
            parts += [render_pairs(info.kwargs, self._characters_max)] if info.kwargs else []
            facts.append(("arguments", ", ".join(parts)))
        outcome = "" if info.has_ended else outcome_of(info, self._output, self._characters_max)
        return [*facts, ("now", outcome)] if outcome else facts

    def _line(self, step: StepInfo, gate: Gate | None) -> str:
        """Return the outcome of a step on one line."""
        place = f"undo {step.place}" if step.is_compensation else step.place
        time = self._output.time(step.ended or step.began)
        name = f"{step.kind} {step.name}".rstrip()
        tries = f"  ({count(step.attempts, 'attempt')})" if step.attempts > 1 else ""
        return f"{place}  {time}  {name}{tries}  {self._came_to(step, gate)}".rstrip()

    def _came_to(self, step: StepInfo, gate: Gate | None) -> str:
        if step.error is not None:
            return f"{'failed' if step.status == 'failed' else 'tried'}: {step.error}"
        if step.status == "begun":
            if gate is not None and gate.status == "pending":
                until = "" if gate.due is None else f", until {self._output.time(gate.due)}"
                return f"waits: {gate.id}{until}  {render(gate.payload, self._characters_max)}"
            return "waits" if step.kind in _WAITING else "begun"
        if step.status == "cut":
            return "cut: the workflow cancelled it"
        if step.status == "closed":
            return "closed: the run has ended"
        if step.kind == "gate" and isinstance(step.result, dict):
            return self._answer(step.result)
        return "" if step.result is None else f"-> {render(step.result, self._characters_max)}"

    def _answer(self, answer: dict[str, Any]) -> str:
        if answer.get("is_timeout"):
            return "-> no answer in time"
        by = f" by {answer['by']}" if answer.get("by") else ""
        payload = "" if answer.get("payload") is None else f"  {render(answer['payload'], self._characters_max)}"
        return f"-> {'approved' if answer.get('approved') else 'rejected'}{by}{payload}"


def _title(info: RunInfo) -> str:
    return f"{info.id}  {info.workflow}  {info.status}"

"""`statelog import-sessions`: copies the sessions of an agent framework and compares the copies."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from statelog.adapters.kit.migration import move
from statelog.cli.opened_stores import open_store
from statelog.cli.options import AS_JSON, MAX_SIZE
from statelog.cli.output import Output
from statelog.cli.text import count
from statelog.cli.values import to_json
from statelog.errors import StatelogError, StoreNotFoundError, UsageError

if TYPE_CHECKING:
    from statelog.adapters.kit.migration import MoveReport

_KINDS = {
    "openai": ("openai_agents", "agents", "openai-agents"),
    "adk": ("google_adk", "google.adk", "google-adk"),
    "crewai": ("crewai", "crewai", "crewai"),
    "strands": ("strands", "strands", "strands"),
    "agent-framework": ("agent_framework", "agent_framework", "agent-framework"),
    "claude": ("claude_agent_sdk", "claude_agent_sdk", "claude-agent-sdk"),
}
"""For each kind: the adapter, the framework's module, and the extra that installs the framework."""

_NAMED_MAX = 5


@click.command("import-sessions", short_help="Copy sessions of an agent framework.")
@click.argument("source", metavar="KIND:PATH")
@click.argument("store", required=False, type=click.Path(path_type=Path))
@MAX_SIZE
@AS_JSON
def import_sessions(*, source: str, store: Path | None, as_json: bool) -> None:
    """Copy the sessions of a framework from PATH to STORE. PATH is only read.

    KIND is the kind of PATH. openai: a database of the OpenAI Agents SDK's SQLiteSession or AdvancedSQLiteSession.
    adk: a database of ADK's DatabaseSessionService or SqliteSessionService.
    crewai: a database of CrewAI's SQLiteFlowPersistence.
    strands: a folder of Strands' LocalFileStorage.
    agent-framework: a folder of Microsoft Agent Framework's FileCheckpointStorage.
    claude: the folder `projects` of Claude Code, or one of its folders.

    STORE is created if it does not exist. Its default is the name of PATH with .state, in the current directory.

    At the end, the command reads each session back and compares it. If an import is interrupted, run it again: it skips
    sessions already copied. A faulty session is named at the end; all others are copied whole.
    """
    kind, _colon, place = source.partition(":")
    if kind not in _KINDS or not place:
        kinds = ", ".join(_KINDS)
        message = f"{source!r} is not a source: give KIND:PATH with a kind of {kinds}, such as openai:conversations.db"
        raise UsageError(message, argument="KIND:PATH", value=source)
    package, module, extra = _KINDS[kind]
    if not _is_installed(module):
        message = f"{module} is not installed: pip install 'statelog[{extra}]'"
        raise UsageError(message, argument="KIND:PATH", value=source)
    path = Path(place)
    if not path.exists():
        message = f"{path} does not exist"
        raise StoreNotFoundError(message, path=place)
    output = Output(as_json=as_json)
    target = store or Path(f"{path.stem}.state")
    opened = import_module(f"statelog.adapters.{package}.move").opened
    with opened(path) as reading, open_store(target) as writing, output.progress("importing") as progress:
        report = move(reading, writing, progress=progress)
    if as_json:
        output.emit(_document(report, source, target))
    else:
        output.say(_sentence(report, source, target))
        for remark in report.remarks:
            output.say(remark)
        for each in report.left_out if len(report.left_out) > 1 else ():
            output.say(f"{each.name!r} is left out: {each.error.message}")
    if report.left_out:
        raise _error_of(report, source)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # The framework is not installed.
        return False


def _document(report: MoveReport, source: str, target: Path) -> dict[str, Any]:
    left_out = [
        {"name": each.name, "error": each.error.message, "kind": type(each.error).__name__, "facts": each.error.facts}
        for each in report.left_out
    ]
    return {
        "source": source,
        "target": str(target),
        "unit": report.unit,
        "found": report.found,
        "copied": report.copied,
        "left_out": to_json(left_out),
        "remarks": list(report.remarks),
    }


def _sentence(report: MoveReport, source: str, target: Path) -> str:
    there = report.found - report.copied - len(report.left_out)
    rest = f" ({there:,} were already there)" if there else ""
    equal = report.found - len(report.left_out)
    return f"{source} -> {target}: {count(equal, report.unit)}{rest}, read back and equal"


def _error_of(report: MoveReport, source: str) -> StatelogError:
    """Return one error for all sessions left out."""
    first = report.left_out[0]
    if len(report.left_out) == 1:
        message = f"{first.name!r} is left out: {first.error.message}"
        return type(first.error)(message, **{**first.error.facts, "session": first.name})
    names = [each.name for each in report.left_out]
    named = ", ".join(map(repr, names[:_NAMED_MAX]))
    rest = f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
    same = all(type(each.error) is type(first.error) for each in report.left_out)
    kind = type(first.error) if same else StatelogError
    return kind(f"{count(len(names), report.unit)} are left out: {named}{rest}", source=source, sessions=names)

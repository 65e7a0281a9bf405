"""The `statelog` command: its sub-commands, and how it reports errors."""

from __future__ import annotations

import difflib
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from statelog.cli import exits
from statelog.cli.bench import bench
from statelog.cli.board import board
from statelog.cli.care import anchor, rebuild_index, stat, verify
from statelog.cli.changes import copy, fork, rollback, tag
from statelog.cli.claims import lease
from statelog.cli.compact import compact
from statelog.cli.crashtest import crashtest
from statelog.cli.demo import demo
from statelog.cli.diffs import diff
from statelog.cli.fleet import fleet
from statelog.cli.gates import gates, outbox, queue
from statelog.cli.inspector import export_html, ui
from statelog.cli.langgraph import export_langgraph, import_langgraph
from statelog.cli.logs import log
from statelog.cli.migrate import migrate
from statelog.cli.portable import export, import_
from statelog.cli.quarantine import quarantine
from statelog.cli.recover import recover
from statelog.cli.rekey import rekey
from statelog.cli.retain import delete, retain
from statelog.cli.runs import runs
from statelog.cli.salvage import salvage
from statelog.cli.schedules import schedules
from statelog.cli.search import search
from statelog.cli.secrets import secrets
from statelog.cli.sessions import import_sessions
from statelog.cli.states import show
from statelog.cli.threads import history, threads
from statelog.cli.tree import tree
from statelog.cli.values import dump_json, to_json
from statelog.errors import (
    CorruptionError,
    ForgeryError,
    GuardError,
    JournalMissingError,
    RollbackError,
    StatelogError,
    StorageError,
    StoreNotFoundError,
)
from statelog.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TRACEBACK_VARIABLE = "STATELOG_TRACEBACK"
"""If this environment variable is set, an internal error prints its traceback."""

_COMPLETE_VARIABLE = "_STATELOG_COMPLETE"


class _Application(click.Group):
    """A group that reports every failure as one line on stderr and an exit code."""

    def main(self, args: Sequence[str] | None = None, *_rest: Any, **_options: Any) -> Any:
        """Run a command line and exit."""
        if _COMPLETE_VARIABLE in os.environ:
            return super().main(args, prog_name="statelog", complete_var=_COMPLETE_VARIABLE)
        _prepare_streams()
        code = self._run(list(sys.argv[1:] if args is None else args))
        sys.exit(code if _flush_stdout() is None else exits.BROKEN_PIPE)

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the commands in the order in which a new user needs them."""
        return list(self.commands)

    def _run(self, arguments: list[str]) -> int:
        code = 0
        try:
            try:
                with self.make_context("statelog", arguments) as context:
                    self.invoke(context)
            except click.exceptions.Exit as exit_:
                code = exit_.exit_code
            sys.stdout.flush()  # If the output cannot be written, the command fails.
        except (KeyboardInterrupt, click.Abort):
            return exits.INTERRUPTED
        except BrokenPipeError:
            return exits.BROKEN_PIPE
        except Exception as error:
            if TRACEBACK_VARIABLE in os.environ:
                raise
            with _known_rules():
                message, code = _explain(error)
                as_json = "--json" in arguments
                line = _error_document(error, message, code) if as_json else exits.error_line(message)
            if not isinstance(_flush_stdout(), BrokenPipeError):  # Write the buffered output before the error.
                click.echo(line, err=True)
            return code
        return code


@contextmanager
def _known_rules() -> Iterator[None]:
    """Make a guard's rules hide secrets in messages during the block, because an argument may be a secret."""
    from statelog import Guard

    guard = None
    with suppress(GuardError):  # Without google-re2, redact without a guard's rules.
        guard = Guard()
    yield
    del guard  # The guard had to be referenced until now, so that its rules applied.


def _explain(error: Exception) -> tuple[str, int]:
    """Return the message for an error, and the exit code."""
    if isinstance(error, StatelogError):
        return redacted(f"{error.message}{_next_step(error)}"), error.exit_code
    if isinstance(error, click.ClickException):
        return redacted(_usage_message(error)), error.exit_code
    if isinstance(error, OSError):
        code = exits.NO_SUCH_FILE if isinstance(error, FileNotFoundError) else exits.OS_ERROR
        where = error.filename or ("output" if _has_working_directory() else "the working directory")
        return redacted(f"{where}: {error.strerror or error}"), code
    what = redacted(f"{type(error).__name__}: {error}") if str(error) else type(error).__name__
    return f"internal error: {what} (set {TRACEBACK_VARIABLE}=1 to see where)", exits.INTERNAL


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _next_step(error: StatelogError) -> str:
    """Return advice in parentheses, or an empty string if there is no advice, or the message already contains it."""
    if isinstance(error, CorruptionError):
        # If the damage is in an export or in a fleet's storage, `verify` and `salvage` of the store do not help.
        is_elsewhere = "offset" in error.facts or "object" in error.facts
        is_of_store = not is_elsewhere and not isinstance(error, JournalMissingError | RollbackError | ForgeryError)
        if not is_of_store or "salvage" in error.message:
            return ""
        path = error.facts.get("path", "STORE")
        return f" (`statelog verify {path}` checks all of it, `statelog salvage {path} NEW` saves what is whole)"
    if isinstance(error, StoreNotFoundError):
        missing = Path(error.facts.get("path", ""))
        with suppress(OSError):
            similar = difflib.get_close_matches(missing.name, [path.name for path in missing.parent.iterdir()], n=1)
            return f" (did you mean {missing.parent / similar[0]}?)" if similar else ""
    if isinstance(error, StorageError) and error.message.endswith("open with a smaller max_size_bytes"):
        return " (--max-size, as in --max-size 1G)"
    return ""


def _error_document(error: Exception, message: str, code: int) -> str:
    """Return an error as one line of JSON."""
    facts = dict(error.facts) if isinstance(error, StatelogError) else {}
    is_usage = isinstance(error, click.ClickException)
    kind = facts.pop("kind", "UsageError" if is_usage else type(error).__name__)
    return dump_json({"error": message, "kind": kind, "exit_code": code, "facts": _redacted_facts(to_json(facts))})


def _redacted_facts(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {name: _redacted_facts(each) for name, each in facts.items()}
    if isinstance(facts, list):
        return [_redacted_facts(each) for each in facts]
    return redacted(facts) if isinstance(facts, str) else facts


def _usage_message(error: click.ClickException) -> str:
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return message
    path = context.command_path.removeprefix("statelog").strip()
    prefix = f"{path}: " if path else ""
    return f"{prefix}{message.rstrip('.')} (see {context.command_path} --help)"


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # The parent process has closed the stream.
            setattr(sys, name, Path(os.devnull).open("w"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # Escape characters that the locale lacks.


def _flush_stdout() -> OSError | None:
    """Flush the buffered output. If the reader has gone or the disk is full, discard it and return the error."""
    try:
        sys.stdout.flush()
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())  # Let the flush at exit succeed.
        os.close(null)
        return error
    return None


def _print_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value:
        return
    from importlib.metadata import PackageNotFoundError, version

    from statelog.format.header import FORMAT_VERSION, FORMAT_VERSION_READ_MIN
    from statelog.storage import lmdb_version

    try:
        release = version("statelog")
    except PackageNotFoundError:
        release = "(not installed)"
    click.echo(f"statelog {release}")
    click.echo(f"format {FORMAT_VERSION} (reads {FORMAT_VERSION_READ_MIN} to {FORMAT_VERSION})")
    click.echo(f"lmdb {version('lmdb')} (LMDB {'.'.join(map(str, lmdb_version()))})")
    context.exit()


@click.group(
    cls=_Application,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=exits.epilog(),
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the release, and the versions of the file format and of lmdb.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """Inspect, roll back and maintain the state of AI agents in one file.

    Commands that only read open the file read-only and never create one. With --json, `threads`, `history`, `tree`,
    `log`, `search`, `board history`, `board watch`, `fleet follow`, `fleet stranded`, `secrets scan` and every `ls`
    write one object per line. All others write one object. Types that JSON lacks become {"$bytes": base64},
    {"$tuple": [...]}, {"$set": [...]}, {"$frozenset": [...]}, {"$datetime": ...}, {"$uuid": ...}, {"$decimal": ...},
    {"$float": "nan"}, {"$int": hexadecimal}. --update and --metadata read the same forms. An error is one object on
    stderr: {"error", "kind", "exit_code", "facts"}.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (
    demo, threads, history, show, tree, diff, log, ui, export_html, rollback, fork, copy, tag, board, lease, runs,
    gates, queue, schedules, outbox, search, quarantine, stat, verify, anchor, rebuild_index, bench, retain, delete,
    compact, migrate, rekey, secrets, export, import_,
    import_langgraph, export_langgraph, import_sessions, fleet, recover, salvage, crashtest,
):  # fmt: skip
    main.add_command(command)

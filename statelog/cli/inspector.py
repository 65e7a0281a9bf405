"""`statelog ui` and `export-html`: the store in a browser, and a thread as one file for a browser."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from statelog.cli.fleet import connect_fleet
from statelog.cli.opened_stores import open_for_reading, open_for_writing
from statelog.cli.options import AS_JSON, BRANCH, STORE, THREAD
from statelog.cli.output import Output
from statelog.cli.targets import find_thread
from statelog.cli.text import format_size
from statelog.errors import AlreadyExistsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@click.command(short_help="Show the store in a browser.")
@STORE
@click.option("--allow-writes", is_flag=True, help="Let the page change the store: rollback, fork, tag.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--fleet",
    metavar="URL",
    help="URL of the fleet that STORE is a copy of. The page then shows the owner and the lag.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port to listen on.")
@AS_JSON
def ui(*, store: Path, allow_writes: bool, host: str, fleet: str | None, port: int, as_json: bool) -> None:
    """Serve a page that shows STORE and print its URL. Ctrl+C ends the server.

    The URL contains a token: anyone who has it can read the store. Other processes can still write to it.
    """
    if not host.strip():  # An empty host would make the server listen on all addresses.
        message = "--host needs an address, such as 127.0.0.1"
        raise UsageError(message, argument="host", value=host)
    with _needed("ui"):
        from statelog.inspector.server import serve
    output = Output(as_json=as_json)

    def announce(address: str) -> None:
        if as_json:
            output.emit({"address": address})
        else:
            output.line(address)
        sys.stdout.flush()

    with ExitStack() as stack:
        ask_fleet = None if fleet is None else stack.enter_context(_asking(fleet, store))
        opened = stack.enter_context(open_for_writing(store) if allow_writes else open_for_reading(store))
        serve(opened, host=host, port=port, announce=announce, ask_fleet=ask_fleet)


@contextmanager
def _asking(url: str, path: Path) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yield a function that asks a fleet's storage who owns the store that is copied at `path`."""
    with connect_fleet(url, path.parent) as fleet:
        from statelog.fleet.names import COPY, store_of

        name = store_of(path.name.removesuffix(COPY))
        fleet.status(name)  # Fail early if the fleet does not have the store.

        def ask() -> dict[str, Any]:
            return {**asdict(fleet.status(name)), "shipped_lsn": fleet.shipped_lsn(name)}

        yield ask


@click.command("export-html", short_help="Write a thread as one HTML file.")
@STORE
@THREAD
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
@BRANCH
@click.option(
    "--versions",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Maximum number of versions of each branch.",
)
@AS_JSON
def export_html(*, store: Path, thread: str, target: Path, branch: str | None, versions: int, as_json: bool) -> None:
    """Write THREAD of STORE to TARGET, a new HTML file that any browser shows without a server.

    Quarantined values stay hidden, and redacted values stay redacted.
    """
    with _needed("export-html"):
        from statelog.inspector.export import export_html
    output = Output(as_json=as_json)
    with open_for_reading(store) as opened:
        found = find_thread(opened, thread, branch)
        try:
            file = target.open("x", encoding="utf-8")
        except FileExistsError:
            message = f"{target} already exists"
            raise AlreadyExistsError(message, path=str(target)) from None
        try:
            with file:
                file.write(export_html(opened, found, versions=versions))
        except BaseException:
            target.unlink(missing_ok=True)
            raise
    if as_json:
        output.emit({"thread": thread, "path": str(target), "size_bytes": target.stat().st_size})
    else:
        output.say(f"thread {thread} is in {target} ({format_size(target.stat().st_size)})")


@contextmanager
def _needed(command: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{command} needs the missing package {error.name} (pip install 'statelog[ui]')"
        raise UsageError(message, package=error.name) from None

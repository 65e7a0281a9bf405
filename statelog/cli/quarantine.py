"""`statelog quarantine`: lists and releases values that checks of a guard have quarantined."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import click

from statelog.cli.opened_stores import open_for_reading, open_for_writing
from statelog.cli.options import AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.paths import format_path
from statelog.errors import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.store.quarantine import QuarantinedPlace

_ID_SIZE_BYTES = 5


@click.group(short_help="List and release quarantined values.")
def quarantine() -> None:
    """List and release values that checks of a guard have quarantined."""


@quarantine.command(name="list", short_help="List quarantined values.")
@STORE
@AS_JSON
def list_(*, store: Path, as_json: bool) -> None:
    """List quarantined values in the heads of all branches and in the board of STORE.

    The values are not shown. `show --include-quarantined` and `board get --include-quarantined` show them.
    """
    output = Output(as_json=as_json)
    with open_for_reading(store) as opened:
        places = opened.quarantined()
    if as_json:
        for each in places:
            output.emit(
                {
                    "id": _id_of(each),
                    "thread": each.thread,
                    "branch": each.branch,
                    "key": each.key,
                    "path": list(each.path),
                    "check": each.check,
                    "reason": each.reason,
                }
            )
        return
    rows = [(_id_of(each), *_shown(each), each.check, each.reason) for each in places]
    output.table(("id", "thread or key", "path", "check", "reason"), rows, whole=("id",))


@quarantine.command(short_help="Store a quarantined value as an ordinary value.")
@STORE
@click.argument("id")
@AS_JSON
def release(*, store: Path, id: str, as_json: bool) -> None:
    """Store the quarantined value ID of STORE as an ordinary value in a new version. `quarantine list` shows IDs."""
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        place = next((each for each in opened.quarantined() if _id_of(each) == id), None)
        if place is None:
            message = f"no quarantined value has the id {id!r}"
            raise NotFoundError(message, id=id)
        opened.release(place)
    if as_json:
        output.emit({"id": id, "thread": place.thread, "key": place.key, "path": list(place.path)})
    else:
        output.say(" ".join(["released", *filter(None, _shown(place))]))


def _id_of(place: QuarantinedPlace) -> str:
    """Return the id of a quarantined value: a digest of its location and its verdict."""
    identity = repr((place.thread, place.branch, place.key, place.path, place.check, place.reason))
    return blake2b(identity.encode("utf-8", "replace"), digest_size=_ID_SIZE_BYTES).hexdigest()


def _shown(place: QuarantinedPlace) -> tuple[str, str]:
    """Return where a quarantined value is: its thread and branch, or the key of its entry, and its path."""
    if place.key is not None:
        return place.key, format_path(place.path) if place.path else ""
    return f"{place.thread} {place.branch}", format_path(place.path)

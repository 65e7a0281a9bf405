"""Arguments and options that commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from statelog.cli.completion import complete_branch, complete_target, complete_thread
from statelog.cli.keys import VARIABLE_DEFAULT, remember_variable
from statelog.cli.opened_stores import remember_size
from statelog.format.anchor import decode_anchor_text

Command = TypeVar("Command", bound=Callable[..., Any])

_STORE = click.argument("store", type=click.Path(path_type=Path, readable=False))
MAX_SIZE = click.option(
    "--max-size",
    metavar="SIZE",
    expose_value=False,
    callback=remember_size,
    help="Maximum address space of the store, such as 64M or 2G.",
)

KEY_ENV = click.option(
    "--key-env",
    metavar="NAME",
    expose_value=False,
    callback=remember_variable,
    help=f"Environment variable with the key of the store. Default: {VARIABLE_DEFAULT}, if set.",
)


def _decode_anchor(_context: click.Context, _parameter: click.Parameter, text: str | None) -> bytes | None:
    return None if text is None else decode_anchor_text(text)


EXPECT = click.option(
    "--expect",
    metavar="ANCHOR",
    callback=_decode_anchor,
    help="Fail if the store does not have the history of this anchor from `statelog anchor`.",
)


def STORE(command: Command) -> Command:  # noqa: N802 - names of option decorators are in capitals
    """Give a command the argument STORE and the options --max-size and --key-env."""
    return _STORE(MAX_SIZE(KEY_ENV(command)))


INCLUDE_QUARANTINED = click.option(
    "--include-quarantined", is_flag=True, help="Show values that a check of a guard has quarantined."
)


class TargetsCommand(click.Command):
    """A command that reads -1 as a version counted from the head, not as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Mark negative numbers as versions, then parse."""
        taking = {
            name for each in self.params if isinstance(each, click.Option) and not each.is_flag for name in each.opts
        }
        told = [
            f"version:{each}" if _FROM_HEAD.fullmatch(each) and before not in taking else each
            for before, each in zip(["", *args], args, strict=False)
        ]
        return super().parse_args(ctx, told)


_FROM_HEAD = re.compile(r"-\d{1,9}")

THREAD = click.argument("thread", shell_complete=complete_thread)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write only JSON to stdout.")
BRANCH = click.option(
    "--branch",
    default=None,
    show_default="main",
    metavar="NAME",
    shell_complete=complete_branch,
    help="Branch of the thread. For a LangGraph thread, also a checkpoint id. Default: the branch LangGraph shows.",
)
INNER = click.option("--inner", is_flag=True, help="Also show LangGraph's internal channels and branches.")
METADATA = click.option("--metadata", metavar="JSON", help="Metadata of the checkpoint, a JSON object.")
ABSOLUTE = click.option(
    "--absolute/--relative",
    default=None,
    help="Show exact times, or ages such as `3m ago`. Default: ages on a terminal only.",
)
IDS = click.option("--ids", is_flag=True, help="Show the ids of checkpoints.")
AT = click.option(
    "--at",
    metavar="TARGET",
    shell_complete=complete_target,
    help=(
        "Version (-1 is the head), tag, checkpoint id or time (ISO 8601, or such as `3m ago`)."
        " A prefix tag:, id:, version: or time: names the kind. Default: the head."
    ),
)

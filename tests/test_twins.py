"""What exists for threads exists on the event loop, and the other way round, or the reason is written here."""

from __future__ import annotations

import inspect

import pytest

import statelog
import statelog.aio.fleet
import statelog.fleet
from statelog import aio, durable, errors
from statelog.aio import board as aio_board
from statelog.aio import durable as aio_durable
from statelog.aio import memory as aio_memory
from statelog.aio.durable.operations import Run as AsyncRun
from statelog.memory import sessions as memory_sessions
from statelog.store.board import Board
from statelog.store.claims import Claim
from statelog.store.transaction import Transaction

TWINS = {
    "durable": (durable, aio_durable),
    "durable.Handle": (durable.Handle, aio_durable.Handle),
    "durable.StepContext": (durable.StepContext, aio_durable.StepContext),
    "durable.Run": (durable.Run, AsyncRun),
    "durable.EnteredRun": (durable.EnteredRun, aio_durable.EnteredRun),
    "store": (statelog, aio),
    "Store": (statelog.Store, aio.Store),
    "Thread": (statelog.Thread, aio.Thread),
    "Transaction": (Transaction, aio.Transaction),
    "Board": (Board, aio_board.Board),
    "Claim": (Claim, aio_board.Claim),
    "Memory": (statelog.Memory, aio.Memory),
    "Session": (memory_sessions.Session, aio_memory.Session),
    "Turn": (memory_sessions.Turn, aio_memory.Turn),
    "fleet": (statelog.fleet, statelog.aio.fleet),
    "Fleet": (statelog.fleet.Fleet, statelog.aio.fleet.Fleet),
}

ON_ONE_SIDE = {
    "store": {
        "both sides raise it": set(dir(errors)),
        "both sides return or take it": {
            *("BranchInfo", "Change", "ChannelSize", "Checkpoint", "ClaimInfo", "CompactionReport", "Diff"),
            *("Encoded", "Entry"),
            *("Event", "ExportReport", "Guard", "Hit", "Hits", "ImageReport", "ImportReport", "Lease", "LeaseInfo"),
            *(
                "LogRecord",
                "MapView",
                "MigrationDifference",
                "MigrationFailure",
                "MigrationReport",
                "Problem",
                "PurgeReport",
            ),
            *("QuarantinedPlace", "ReaderStatistics", "RetentionReport", "Rules", "SecretFound", "SizeWarning"),
            *("Snapshot", "StateSize", "StoreStatistics", "StoredPolicy", "TableStatistics", "ThreadInfo"),
            *("ThreadStatistics", "VerifyReport", "Versioned"),
            *("errors", "guard", "reducers", "register_codec", "versioned"),
        },
        "on the loop, the methods that return it are iterators and context managers": {"Mount", "Watch"},
        "nobody else has the file open while it is mended, and a loop has nothing to do beside it": {
            "RecoveryReport",
            "recover",
        },
        "for threads it is in a module of statelog.store": {"State"},
    },
    "Memory": {},
    "Session": {},
    "Turn": {
        "an attribute of each turn for threads": {"is_completed", "is_resumed", "working"},
        "for threads, the working state is a mapping that writes": {"set", "remove"},
    },
    "Store": {"leads from the loop to code for threads": {"sync"}},
    "Thread": {
        "an attribute of each thread of statelog.aio": {"branch", "id"},
        "Checkpoint has it for threads, and reads the file": {
            *("ancestor_of", "branch_of", "common_ancestor_of", "parent_of", "state_of", "stored_of"),
        },
    },
}
"""Names that one side alone has, by the reason."""

OTHERWISE_CALLED = {
    "store.open": "keywords go to `statelog.open` as they are",
    "Store.snapshot": "a snapshot is read in one function, on the pool: a loop cannot hold it open",
    "Thread.mount": "on the loop a state is always mounted whole",
    "fleet.share": "keywords go to `statelog.fleet.share` as they are",
    "Fleet.gc": "keywords go to `statelog.fleet.Fleet.gc` as they are",
    "Fleet.open": "keywords go to `statelog.fleet.Fleet.open` as they are",
}
"""Functions whose parameters differ, with the reason."""


def names_of(thing):
    if inspect.ismodule(thing):
        return set(thing.__all__)
    return {name for name in dir(thing) if not name.startswith("_")}


def parameters_of(function):
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("what", TWINS)
def test_each_missing_name_has_a_reason_and_no_reason_is_unused(what):
    threads, loop = map(names_of, TWINS[what])
    reasons = ON_ONE_SIDE.get(what, {})
    assert threads ^ loop == set().union(*reasons.values())


@pytest.mark.parametrize("what", TWINS)
def test_twins_take_the_same_parameters_or_there_is_a_reason(what):
    threads, loop = TWINS[what]
    differing = set()
    for name in names_of(threads) & names_of(loop):
        one, other = getattr(threads, name), getattr(loop, name)
        if one is other or not inspect.isfunction(one) or not inspect.isfunction(other):
            continue
        if parameters_of(one) != parameters_of(other):
            differing.add(f"{what}.{name}")
    assert differing == {each for each in OTHERWISE_CALLED if each.rpartition(".")[0] == what}

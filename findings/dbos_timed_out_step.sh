#!/usr/bin/env bash
# DBOS: a step that times out under asyncio.wait_for leaves no record, so a replay contradicts itself.
#
# Versions: dbos 3.4.0 on SQLite, Python 3.11.
#
# An async workflow waits for a slow step with asyncio.wait_for, catches TimeoutError, and passes
# "late" to a second step. The record of the run holds step 2 and no step 1. The workflow is then
# forked from step 3, so that steps 1 and 2 should be replayed. Step 1 runs a second time instead.
# It is fast this time and returns, so the code takes the other branch. Step 2 is replayed from the
# record, with the outcome of the first branch. The result holds both: the step was paid and late.
# DBOS reports success.
#
# We expected the record to hold the cancellation, or the replay to raise an error because it left
# the recorded path. DBOS compares the names of steps, and the second step has the same name.
#
# Output seen:
#   first run: ('late', 'noted late'), step 1 ran 1 time, record [(2, 'note')]
#   replay: ('paid', 'noted late'), step 1 ran 2 times, record [(1, 'charge'), (2, 'note')]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q dbos==3.4.0
cat > "$folder/probe.py" <<'PY'
import asyncio
import sys

from dbos import DBOS, SetWorkflowID

DBOS(
    config={
        "name": "probe",
        "system_database_url": f"sqlite:///{sys.argv[1]}/system.sqlite",
        "run_admin_server": False,
        "log_level": "ERROR",
    }
)
duration_s = 5.0
runs = 0


@DBOS.step()
async def charge():
    global runs
    runs += 1
    await asyncio.sleep(duration_s)
    return "paid"


@DBOS.step()
async def note(text):
    return f"noted {text}"


@DBOS.workflow()
async def order():
    try:
        outcome = await asyncio.wait_for(charge(), 0.5)
    except asyncio.TimeoutError:
        outcome = "late"
    return outcome, await note(outcome)


async def first_run():
    with SetWorkflowID("order-1"):
        return await order()


def record(workflow_id):
    return [(step["function_id"], step["function_name"]) for step in DBOS.list_workflow_steps(workflow_id)]


DBOS.launch()
first = asyncio.run(first_run())
first_runs, first_record = runs, record("order-1")
print(f"first run: {first}, step 1 ran {first_runs} time, record {first_record}")
duration_s = 0.0
handle = DBOS.fork_workflow("order-1", 3)
second = handle.get_result()
second_record = record(handle.workflow_id)
print(f"replay: {second}, step 1 ran {runs} times, record {second_record}")
DBOS.destroy()

seen = (first, first_runs, first_record, tuple(second), runs, second_record)
expected = (
    ("late", "noted late"), 1, [(2, "note")],
    ("paid", "noted late"), 2, [(1, "charge"), (2, "note")],
)
sys.exit(seen != expected)
PY
"$folder/venv/bin/python" "$folder/probe.py" "$folder"

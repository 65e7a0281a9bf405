#!/usr/bin/env bash
# LangGraph: some NumPy arrays in a checkpoint come back as None, or as other data.
#
# Versions: langgraph-checkpoint 4.3.2, ormsgpack 1.13.1, numpy 2.4.6, Python 3.11.
#
# JsonPlusSerializer stores NumPy arrays. Arrays of numbers and of strings come back equal.
# An array of dtype object comes back as None, even if all its elements are plain strings.
# A structured array comes back as raw bytes, without its field names.
# A masked array comes back as a plain array, and shows the value that was masked.
# Nothing is raised or logged, on either side.
#
# We expected an error from dumps_typed for an array that it cannot store. It raises TypeError for
# an array of dates and for a NumPy scalar, so the silence is not a general rule.
#
# Output seen:
#   numbers: kept
#   objects: None
#   structured: dtype |V12
#   masked: [1, 2]
#   dates: TypeError
#   scalar: TypeError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q langgraph-checkpoint==4.3.2 ormsgpack==1.13.1 numpy==2.4.6
cat > "$folder/probe.py" <<'PY'
import sys

import numpy as np
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

serializer = JsonPlusSerializer()


def round_trip(value):
    try:
        return serializer.loads_typed(serializer.dumps_typed(value))
    except TypeError:
        return TypeError


numbers = np.array([1.5, 2.5])
seen = {
    "numbers": "kept" if np.array_equal(round_trip(numbers), numbers) else "changed",
    "objects": str(round_trip(np.array(["red", "green"], dtype=object))),
    "structured": f"dtype {round_trip(np.array([(1, 2.0)], dtype=[('id', 'i4'), ('score', 'f8')])).dtype.str}",
    "masked": str(round_trip(np.ma.array([1, 2], mask=[False, True])).tolist()),
    "dates": round_trip(np.array(["2024-01-01"], dtype="datetime64[D]")).__name__,
    "scalar": round_trip(np.float32(1.5)).__name__,
}
for name, what in seen.items():
    print(f"{name}: {what}")

expected = ["kept", "None", "dtype |V12", "[1, 2]", "TypeError", "TypeError"]
sys.exit(list(seen.values()) != expected)
PY
"$folder/venv/bin/python" "$folder/probe.py"

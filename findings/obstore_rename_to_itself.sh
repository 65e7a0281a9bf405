#!/usr/bin/env bash
# obstore: MemoryStore deletes an object that is renamed to its own name. LocalStore keeps it.
#
# Versions: obstore 0.12.1, Python 3.11.
#
# obstore.rename(store, "a", "a") returns None on both stores. LocalStore still holds the object,
# as POSIX rename does. MemoryStore no longer holds it: rename is a copy followed by a deletion of
# the source, and the source is the copy. No error is raised.
#
# We expected a rename to the same name to change nothing, whatever the store. Tests on a
# MemoryStore and runs on a LocalStore therefore differ for code that computes the target name.
#
# Output seen:
#   LocalStore ['a']
#   MemoryStore []
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q obstore==0.12.1
cat > "$folder/probe.py" <<'PY'
import sys

import obstore
from obstore.store import LocalStore, MemoryStore

left = {}
for store in (LocalStore(sys.argv[1], mkdir=True), MemoryStore()):
    obstore.put(store, "a", b"payload")
    assert obstore.rename(store, "a", "a") is None
    left[type(store).__name__] = [each["path"] for each in obstore.list(store).collect()]
for name, paths in left.items():
    print(name, paths)

sys.exit(left != {"LocalStore": ["a"], "MemoryStore": []})
PY
"$folder/venv/bin/python" "$folder/probe.py" "$folder/objects"

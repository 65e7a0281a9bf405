#!/usr/bin/env bash
# LMDB: a copy of the folder, made inside the process, removes the process from the reader table.
#
# Versions: lmdb 3.0.0 (py-lmdb), Python 3.11, Linux.
#
# A process holds an open read transaction. A second process opens the same environment and sees
# one reader, as it should. Then the first process copies the folder of the environment with
# shutil.copytree, which only reads data.mdb and lock.mdb. The next process that opens the
# environment sees no reader, and neither does the first process, whose transaction is still open.
#
# We expected a plain read of lock.mdb to be harmless. LMDB marks its presence with POSIX record
# locks on lock.mdb. POSIX releases all locks that a process has on a file when the process closes
# any descriptor of that file. The next process to open the environment then finds no lock, takes
# itself for the only user, and clears the reader table. The live snapshot no longer protects its
# pages from reuse. Copy with Environment.copy(), or from another process.
#
# Output seen:
#   before the copy, another process sees 1 reader
#   after the copy, another process sees 0 readers
#   the reader itself sees: (no active readers)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q lmdb==3.0.0
cat > "$folder/probe.py" <<'PY'
import os
import shutil
import subprocess
import sys

import lmdb

COUNT = """
import sys, lmdb
with lmdb.open(sys.argv[1]) as env:
    print(sum(line.split()[0] == sys.argv[2] for line in env.readers().splitlines()))
"""


def readers_seen_by_another_process(path):
    command = [sys.executable, "-c", COUNT, path, str(os.getpid())]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


path = os.path.join(sys.argv[1], "db")
with lmdb.open(path) as env:
    with env.begin(write=True) as write:
        write.put(b"key", b"value")
    with env.begin() as read:
        before = readers_seen_by_another_process(path)
        shutil.copytree(path, path + "-backup")
        after = readers_seen_by_another_process(path)
        print(f"before the copy, another process sees {before} reader")
        print(f"after the copy, another process sees {after} readers")
        print("the reader itself sees:", env.readers().strip())
        still_open = read.get(b"key") == b"value"

sys.exit((before, after, still_open) != (1, 0, True))
PY
"$folder/venv/bin/python" "$folder/probe.py" "$folder"

"""Try an installed statelog as a new user would: the command, a store, a kill in the middle, and what is left then.

Run by the Python it is installed for, away from the checkout. Asks for nothing that statelog itself does not need.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import statelog

WORKER = """
import itertools, statelog, sys
with statelog.open(sys.argv[1]) as store:
    thread = store.thread("t")
    for step in itertools.count(1):
        thread.commit({"step": step})
        print(step, flush=True)
"""


def main() -> None:
    place = Path(statelog.__file__).parent
    assert place.is_relative_to(sysconfig.get_path("platlib")), f"{place} is not the installed statelog"
    compilers = [found for found in map(shutil.which, ("cc", "gcc", "clang")) if found]
    if "--no-compiler" in sys.argv:
        assert not compilers, compilers
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.state"
        with subprocess.Popen([sys.executable, "-c", WORKER, path], stdout=subprocess.PIPE, text=True) as worker:
            for line in worker.stdout:
                if int(line) == 20:
                    worker.send_signal(signal.SIGKILL)
                    break
        with statelog.open(path) as store:
            step = store.thread("t").state["step"]
            assert step >= 20, step
            assert store.verify().ok
        command = Path(sysconfig.get_path("scripts")) / "statelog"
        environment = {**os.environ, "COLUMNS": "80"}
        told = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
        demo = [command, "demo", "--directory", folder]
        subprocess.run(demo, check=True, stdout=subprocess.DEVNULL, env=environment)
    print(*told.splitlines(), f"Python {sys.version.split()[0]}", sep=", ")


main()

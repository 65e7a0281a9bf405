"""An inspector in a process of its own, and hostile texts for it to show."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>'
OVERRIDE = "invoice\u202efdp.exe"


@contextmanager
def serving(path, *options):
    """Run `statelog ui` in a process of its own. Yield the address that it prints."""
    command = [sys.executable, "-m", "statelog", "ui", str(path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(10)

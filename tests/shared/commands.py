"""A command in this process, answered as one in a process of its own would be: which may take a second to begin."""

import subprocess

from click.testing import CliRunner

from statelog.cli import main


def run_here(*arguments):
    """Return how a command ended, and what it said."""
    arguments = [str(argument) for argument in arguments]
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "1000"})
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)

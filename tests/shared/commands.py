"""Runs a command in this process as if in a new process, which may take a second to start."""

import subprocess

from click.testing import CliRunner

from statelog.cli import main


def run_here(*arguments):
    """Return the exit code and the output of a command."""
    arguments = [str(argument) for argument in arguments]
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "1000"})
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)

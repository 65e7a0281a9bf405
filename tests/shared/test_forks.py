"""A forked Python behaves like a started one for the test that starts it."""

import os
import signal
import subprocess
import sys

import forks
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a Python is started")


def python(*words, **options):
    return forks.run([sys.executable, *words], capture_output=True, text=True, **options)


def test_it_is_a_child_of_the_test_and_each_has_a_process_of_its_own():
    told = [python("-c", "import os; print(os.getpid(), os.getppid())").stdout.split() for _ in range(2)]
    assert [int(parent) for _pid, parent in told] == [os.getpid()] * 2
    assert len({pid for pid, _parent in told} | {str(os.getpid())}) == 3


@pytest.mark.parametrize("module", [subprocess, forks])
def test_it_has_its_arguments_its_folder_its_variables_and_its_input(module, tmp_path):
    code = "import os, sys; print(sys.argv, os.getcwd(), os.environ['A'], sys.path[0], __name__, sys.stdin.read())"
    command = [sys.executable, "-c", code, "x", "y"]
    options = {"cwd": tmp_path, "env": {"A": "b"}, "input": "in", "capture_output": True, "text": True}
    assert module.run(command, **options).stdout == f"['-c', 'x', 'y'] {tmp_path} b  __main__ in\n"


@pytest.mark.slow
def test_its_end_is_told(tmp_path):
    assert python("-c", "raise SystemExit(3)").returncode == 3
    failed = python("-c", "1 / 0")
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")
    with pytest.raises(subprocess.CalledProcessError):
        python("-c", "1 / 0", check=True)
    assert python("-m", "statelog", "verify", str(tmp_path / "none")).returncode == 11


def test_it_is_killed_as_any_child():
    command = [sys.executable, "-c", "print('there', flush=True); import time; time.sleep(600)"]
    with forks.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "there\n"
        assert child.poll() is None
        child.kill()
    assert child.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_warnings_are_errors_where_they_are_to_be():
    code = "import warnings; warnings.warn('of this')"
    assert [python(*options, "-c", code).returncode for options in ([], ["-W", "error"], ["-W", "ignore"])] == [0, 1, 0]


def test_a_named_point_kills_it(tmp_path):
    code = "import statelog, sys; statelog.open(sys.argv[1]).thread('t').commit({'n': 1})"
    variables = {**os.environ, "STATELOG_FAULT": "commit.before_lmdb_commit:1:kill"}
    assert python("-c", code, str(tmp_path / "s"), env=variables).returncode == -signal.SIGKILL
    assert python("-c", code, str(tmp_path / "s")).returncode == 0


def test_a_process_that_is_to_be_limited_is_started():
    assert python("-c", "import sys; print('statelog' in sys.modules)", preexec_fn=lambda: None).stdout == "False\n"


@pytest.mark.slow
def test_a_shell_has_its_commands(tmp_path):
    with forks.commands(tmp_path):
        script = (
            "python -c 'import sys; print(sys.argv)' a; echo 'print(5)' | python -; statelog verify none || echo $?"
        )
        script += "; python -c 'import os; os.kill(os.getpid(), 9)' || echo $?"
        variables = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(["sh", "-c", script], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "['-c', 'a']\n5\n11\n137\n"

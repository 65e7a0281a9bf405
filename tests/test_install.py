"""One wheel a platform serves every Python: what the build, the wheels' configuration and the code say of it agrees."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["project"]["classifiers"]), re.MULTILINE)
OLDEST = PYTHONS[0]
HEADER = (ROOT / "native" / "python" / "objects.h").read_text(encoding="utf-8")


def test_the_oldest_python_is_the_one_required():
    assert PROJECT["project"]["requires-python"] == f">={OLDEST}"


def test_the_compiled_kernels_use_the_stable_abi_of_the_oldest_python():
    assert importlib.util.find_spec("statelog._kernels").origin.endswith(".abi3.so")
    assert PROJECT["tool"]["distutils"]["bdist_wheel"]["py-limited-api"] == f"cp{OLDEST.replace('.', '')}"
    major, minor = map(int, OLDEST.split("."))
    assert int(re.search(r"#define Py_LIMITED_API (\w+)", HEADER).group(1), 16) == major << 24 | minor << 16


def test_the_wheel_is_tried_on_every_python_it_is_for():
    wheels = PROJECT["tool"]["cibuildwheel"]
    assert wheels["build"] == [f"cp{each.replace('.', '')}-*" for each in PYTHONS]
    script = ROOT / wheels["test-command"].split("{project}/")[1]
    if (ROOT / ".ci").is_dir():  # a source distribution is built already
        assert script.is_file()

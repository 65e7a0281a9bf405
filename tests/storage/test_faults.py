import re
from pathlib import Path

import pytest

from statelog import log, storage
from statelog.errors import UsageError
from statelog.storage import faults

POINT = "commit.before_begin"


class StruckError(Exception):
    pass


def strike():
    raise StruckError


def test_the_source_passes_every_point_and_no_other():
    sources = "".join(file.read_text() for room in (log, storage) for file in Path(room.__file__).parent.rglob("*.py"))
    assert set(re.findall(r'\bpoint\("([^"]+)"\)', sources)) == set(faults.POINTS)


def test_an_unarmed_point_does_nothing():
    faults.arm("commit.after_begin", action=strike)
    faults.point(POINT)


def test_a_fault_occurs_once_at_its_armed_pass():
    faults.arm(POINT, count=3, action=strike)
    faults.point(POINT)
    faults.point(POINT)
    with pytest.raises(StruckError):
        faults.point(POINT)
    faults.point(POINT)


def test_disarm_disarms_all():
    faults.arm(POINT, action=strike)
    faults.disarm()
    faults.point(POINT)


def test_several_points_can_be_armed():
    faults.arm(POINT, action=strike)
    faults.arm("commit.after_begin", action=strike)
    with pytest.raises(StruckError):
        faults.point("commit.after_begin")
    with pytest.raises(StruckError):
        faults.point(POINT)


@pytest.mark.parametrize("fault", ["nowhere:1:kill", f"{POINT}:0:kill", f"{POINT}:1:dance"])
def test_an_invalid_fault_is_a_usage_error(fault, monkeypatch):
    monkeypatch.setenv(faults.ENVIRONMENT_VARIABLE, fault)
    with pytest.raises(UsageError):
        faults.arm_from_environment()


@pytest.mark.parametrize("fault", [POINT, f"{POINT}:kill", f"{POINT}:x:kill"])
def test_an_invalid_environment_variable_is_a_usage_error(fault, monkeypatch):
    monkeypatch.setenv(faults.ENVIRONMENT_VARIABLE, fault)
    with pytest.raises(UsageError, match="name:count:action"):
        faults.arm_from_environment()


def test_the_environment_variable_arms_a_child(run_child):
    status, said = run_child(
        "say('before'); faults.point('commit.before_begin'); say('after')", fault=f"{POINT}:1:kill"
    )
    assert (status, said) == (-9, ["before"])


def test_a_child_without_the_variable_has_no_fault(run_child):
    status, said = run_child("say('before'); faults.point('commit.before_begin'); say('after')")
    assert (status, said) == (0, ["before", "after"])

import pytest

from benchmarks.measure import Samples, interleave, median, percentile
from benchmarks.report import filesystem_of
from benchmarks.result import at_least, at_most


def test_percentiles_are_values_that_were_measured():
    assert percentile(range(1, 101), 50) == 50
    assert percentile(range(1, 101), 99) == 99
    assert percentile([7], 99) == 7
    assert median([3, 1, 2]) == 2


@pytest.mark.slow
def test_sides_take_turns_and_every_other_round_goes_backwards():
    order = []
    samples = interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, count=16)
    assert "".join(order) == "ab" + "a" * 8 + "b" * 8 + "b" * 8 + "a" * 8
    assert [len(taken.durations_ns) for taken in samples.values()] == [16, 16]


def test_a_check_is_met_up_to_its_target():
    assert at_most("x", 2.0, 2.0).is_met
    assert not at_most("x", 2.1, 2.0).is_met
    assert at_least("x", 3.0, 3.0).is_met
    assert not at_least("x", 2.9, 3.0).is_met


def test_written_bytes_are_those_handed_to_the_system(tmp_path):
    samples = Samples()
    with (tmp_path / "file").open("wb", buffering=0) as file:
        samples.take(lambda: file.write(bytes(5000)), 4)
    side = samples.side("write")
    assert side.operations == 4
    assert side.written_bytes in (5000.0, None)


def test_a_file_system_has_a_name(tmp_path):
    assert filesystem_of(tmp_path)

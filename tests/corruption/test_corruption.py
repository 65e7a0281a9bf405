"""Damage of a file is detected, and damaged bytes are never read as other data."""

import pytest
from corruption import PAGE_SIZE_BYTES, Damage, check_corruption, is_undecidable, make_sample
from corruption_case import Patch, look_at
from corruption_pages import PageMap

from statelog.testing.powerloss.recorder import log_directory

SOAK_FLIPS = 10_000
SOAK_LARGER = 700


@pytest.fixture(scope="module")
def sample():
    return make_sample()


@pytest.fixture
def look(sample, tmp_path):
    return lambda *patches, of=sample: look_at(of, tmp_path / "damaged.state", patches)


@pytest.fixture(scope="module")
def flip_at(sample):
    """Return damage to the first byte of a place."""
    offsets = {str(place): found for place, found in PageMap(sample).offsets().items()}

    def flip(place, *, byte=0, bit=0):
        offset = offsets[place][byte]
        return Patch(offset, bytes((sample[offset] ^ 1 << bit,)))

    return flip


@pytest.fixture
def check(capsys):
    """Check a report, and print it also when the test passes."""

    def check_report(report):
        with capsys.disabled():
            print(f"\n{report.done:,} damaged files, {report.rate:.4%} of visible damage found", end="; ")  # noqa: T201
            print(f"reads: {report.damaged_reads:,} damaged, {report.absent_reads:,} absent", end="; ")  # noqa: T201
            print(f"{report.wrong} wrong; {report.duration_s:.0f} s")  # noqa: T201
        _check(report)

    return check_report


def _check(report):
    assert report.wrong == 0, report.bad
    assert report.missed == report.undecidable, report.bad
    assert report.spread == 0, report.bad
    assert (report.misnamed, report.leaked, report.hung) == (0, 0, 0), report.bad
    assert report.unexplained == {}


@pytest.mark.slow
def test_damage_is_detected_and_never_read_as_data(check):
    check(check_corruption(flip_count=20, larger_count=21, seed=2))


@pytest.mark.soak
def test_ten_thousand_flips_are_detected_or_explained(check, soak_scale):
    counts = {"flip_count": int(SOAK_FLIPS * soak_scale), "larger_count": int(SOAK_LARGER * soak_scale)}
    report = check_corruption(**counts, directory=log_directory())
    check(report)
    assert report.undecidable <= 3, "of 10,000 flips, those of one bit"
    assert report.placed_reads == report.damaged_reads
    # Left: the number of an upper page that leads to an older copy, and from there to leaves in use (DESIGN.md 6).
    assert report.absent_reads <= report.damaged_reads / 100


@pytest.mark.slow
def test_a_sound_file_reads_as_it_is(look):
    result = look()
    assert not result.is_found
    assert not result.is_visible
    assert result.reading.same > 30
    assert result.later.same > 30


@pytest.mark.slow
@pytest.mark.parametrize("place", ["log, leaf page: value", "log, long value: value", "index, leaf page: value"])
def test_verify_names_a_flipped_bit_in_stored_bytes(look, flip_at, place):
    result = look(flip_at(place, byte=40, bit=3))
    assert result.is_found
    assert result.verifying.problems > 0
    assert result.reading.wrong == ()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["free page: all", "stale meta page: unused rest", "log, leaf page: unused gap"])
def test_a_flipped_bit_in_unused_bytes_changes_nothing(look, flip_at, place):
    result = look(flip_at(place, byte=7))
    assert not result.is_found
    assert not result.is_visible
    assert result.later.same > 30


@pytest.mark.slow
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("place", "bytes_flipped"),
    [
        ("index, leaf page: key", range(0, 4000, 97)),
        ("index, leaf page: bounds", range(32)),
        ("index, leaf page: node pointers", range(0, 440, 7)),
        ("index, leaf page: size of a key", range(0, 440, 11)),
        ("index, leaf page: page number", range(0, 64, 8)),
        ("index, branch page: key", range(0, 260, 3)),
        ("index, branch page: bounds", range(4)),
        ("index, branch page: node pointers", range(16)),
    ],
)
def test_e6_no_flip_in_the_index_makes_anything_seem_absent(look, flip_at, place, bytes_flipped, every):
    for byte in bytes_flipped[::every]:
        result = look(flip_at(place, byte=byte, bit=byte % 8))
        assert (result.reading.wrong, result.reading.absent) == ((), ())
        assert result.is_found or not result.is_visible


def test_a_file_cut_off_is_refused_before_it_is_mapped(sample, look):
    result = look(Patch(len(sample) // 2 // PAGE_SIZE_BYTES * PAGE_SIZE_BYTES, b"", cut=True))
    assert result.verifying.refused == result.reading.refused == "CorruptionError"


@pytest.mark.slow
def test_a_page_from_an_earlier_time_is_detected(sample, look):
    """A lost write: each page is sound, but one of them is from an earlier commit."""
    pages = PageMap(sample)
    leaf = next(offsets[0] for place, offsets in pages.offsets().items() if str(place) == "log, leaf page: page number")
    start = leaf // PAGE_SIZE_BYTES * PAGE_SIZE_BYTES
    free = next(offsets for place, offsets in pages.offsets().items() if place.page == "free page")
    olds = {offset // PAGE_SIZE_BYTES for offset in free}
    stale = [sample[number * PAGE_SIZE_BYTES :][:PAGE_SIZE_BYTES] for number in sorted(olds)]
    for page in stale[::15]:
        result = look(Patch(start, page))
        assert result.is_found or not result.is_visible
        assert result.reading.wrong == ()


@pytest.mark.slow
def test_a_read_notices_another_store_at_its_path(sample, look):
    """Negative control: a sound file with other contents; the harness must see that they are not the truth."""
    other = make_sample()
    assert other != sample
    result = look(Patch(0, other))
    assert not result.is_found
    assert result.is_visible
    assert result.reading.wrong


@pytest.mark.parametrize(
    ("place", "offset", "byte", "expected"),
    [
        ("live meta page: transaction id", 4240, 0x35, True),
        ("live meta page: transaction id", 4240, 0x33, False),
        ("live meta page: transaction id", 4241, 0x35, False),
        ("stale meta page: transaction id", 4240, 0x35, False),
    ],
)
def test_one_bit_alone_is_undecidable(place, offset, byte, expected):
    damage = Damage("flip", place, (Patch(offset, bytes([byte])),))
    assert is_undecidable(damage) is expected

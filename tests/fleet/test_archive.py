"""The contract of `Archive`, which every storage of a fleet fulfils."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from statelog.errors import ForkedError
from statelog.fleet import names
from statelog.fleet.archive import Outcome, StoredObject
from statelog.fleet.storage_urls import open_archive, probe

RACERS = 8
NAMES = ["s/head", "s/log/000000000001/000000000001"]
"""The names of an object that changes and of one that does not, which Postgres stores apart."""

KEEPS_A_CONNECTION = {"s3": "bucket", "postgresql": "postgres"}
"""The storages that keep a connection, by scheme. A forked child cannot use the connection."""

NOT_FORKED = {
    "gs": "one class with s3",
    "az": "one class with s3",
    "postgres": "another name of postgresql",
    "file": "it keeps no connection",
}
"""The schemes that the test of a forked child leaves out, each with the reason."""

ODD_NAMES = [
    f"{names.folder(name)}head"
    for name in ["ticket 42", "a/b", "50%", "%2F", "ünï", "~", "...", "-", "A.B_c~d", "a+b=c&d?e#f", "é" * 33]
]


def race(attempts):
    """Return the answers to several concurrent attempts."""
    start = Barrier(len(attempts))

    def run(attempt):
        start.wait()
        return attempt()

    with ThreadPoolExecutor(len(attempts)) as racers:
        return [*racers.map(run, attempts)]


def wins(answers):
    return [number for number, answer in enumerate(answers) if isinstance(answer, str)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_created_objects_exist(archive, name):
    token = archive.create(name, b"bytes")
    assert isinstance(token, str)
    assert archive.read(name) == StoredObject(b"bytes", token)
    assert archive.look(name) == token


@pytest.mark.slow
def test_an_object_that_was_not_put_does_not_exist(archive):
    assert archive.read("s/head") is None
    assert archive.look("s/head") is None
    assert archive.names("") == []
    assert archive.ages("") == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_object_is_created_once(archive, name):
    archive.create(name, b"first")
    assert archive.create(name, b"second") is Outcome.REFUSED
    assert archive.read(name).data == b"first"


@pytest.mark.parametrize("name", NAMES)
def test_one_of_eight_concurrent_creations_of_an_object_succeeds(archive, name):
    for number in range(5):
        place = f"{number}/{name}"
        answers = race(
            [lambda draft=draft, place=place: archive.create(place, b"%d" % draft) for draft in range(RACERS)]
        )
        (winner,) = wins(answers)
        assert archive.read(place) == StoredObject(b"%d" % winner, answers[winner])


@pytest.mark.parametrize("name", NAMES)
def test_one_of_eight_concurrent_swaps_of_an_object_succeeds(archive, name):
    token = archive.create(name, b"")
    for _round in range(5):
        answers = race(
            [
                lambda draft=draft, token=token: archive.swap(name, token.encode() + b"%d" % draft, token)
                for draft in range(RACERS)
            ]
        )
        (winner,) = wins(answers)
        assert archive.read(name) == StoredObject(token.encode() + b"%d" % winner, answers[winner])
        token = answers[winner]


@pytest.mark.parametrize("name", NAMES)
def test_a_swap_changes_the_token(archive, name):
    first = archive.create(name, b"first")
    second = archive.swap(name, b"second", first)
    assert isinstance(second, str)
    assert second != first
    assert archive.look(name) == second
    assert archive.swap(name, b"third", first) is Outcome.REFUSED
    assert archive.read(name) == StoredObject(b"second", second)


def test_a_missing_object_cannot_be_swapped(archive):
    token = archive.create("s/head", b"first")
    assert archive.swap("t/head", b"second", token) is Outcome.REFUSED
    archive.remove(["s/head"])
    assert archive.swap("s/head", b"second", token) is Outcome.REFUSED
    assert archive.names("") == []


def test_names_are_sorted_and_begin_with_the_prefix(archive):
    put = ["t/head", "s/log/2/1", "s/log/1/2", "s/log/1/1", "s/head", "s2/head"]
    for name in put:
        archive.create(name, b"")
    assert archive.names("") == sorted(put)
    assert archive.names("s/") == ["s/head", "s/log/1/1", "s/log/1/2", "s/log/2/1"]
    assert archive.names("s") == ["s/head", "s/log/1/1", "s/log/1/2", "s/log/2/1", "s2/head"]
    assert archive.names("s/log/1") == ["s/log/1/1", "s/log/1/2"]
    assert archive.names("s/log/1/2") == ["s/log/1/2"]
    assert archive.names("nothing/") == []


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_unusual_name_is_kept_unchanged(archive, name):
    token = archive.create(name, name.encode())
    assert archive.read(name) == StoredObject(name.encode(), token)
    folder = name.removesuffix("head")
    for prefix in ("", folder, f"{folder}he", name):
        assert archive.names(prefix) == [name]
        assert archive.ages(prefix).keys() == {name}
    assert isinstance(archive.swap(name, b"", token), str)
    archive.remove([name])
    assert archive.names("") == []


@pytest.mark.slow
def test_more_names_than_a_page_are_listed_and_removed(archive):
    put = [f"s/log/1/{number:04}" for number in range(1100)]
    with ThreadPoolExecutor(8) as putters:
        assert all(isinstance(token, str) for token in putters.map(lambda name: archive.create(name, b""), put))
    assert archive.names("s/") == put
    archive.remove(put)
    assert archive.names("s/") == []


@pytest.mark.parametrize("name", NAMES)
def test_an_object_of_three_megabytes_is_returned_unchanged(archive, name):
    data = os.urandom(3 << 20)
    archive.create(name, data)
    assert archive.read(name).data == data


def test_names_after_a_given_name_are_listed_even_if_that_name_does_not_exist(archive):
    put = ["s/log/1/1", "s/log/1/2", "s/log/1/3", "s/log/2/1", "t/log/1/1"]
    for name in put:
        archive.create(name, b"")
    assert archive.names_after("s/log/1/", "s/log/1/0") == put[:3]
    assert archive.names_after("s/log/1/", "s/log/1/2") == ["s/log/1/3"]
    assert archive.names_after("s/log/1/", "s/log/1/3") == []
    assert archive.names_after("s/", "s/log/1/25") == ["s/log/1/3", "s/log/2/1"]


def test_an_object_may_be_empty(archive):
    token = archive.create("s/log/1/1", b"")
    assert archive.read("s/log/1/1") == StoredObject(b"", token)


def test_removed_objects_are_gone_and_others_stay(archive):
    for name in ["s/head", "s/log/1/1", "s/log/1/2"]:
        archive.create(name, name.encode())
    archive.remove(["s/head", "s/log/1/1", "not/there", "not/head"])
    assert archive.names("") == ["s/log/1/2"]
    assert archive.read("s/head") is None
    assert isinstance(archive.create("s/head", b"again"), str)
    archive.remove([])


def test_ages_of_new_objects_are_small(archive):
    archive.create("s/head", b"")
    archive.create("s/log/1/1", b"")
    archive.create("t/head", b"")
    found = archive.ages("s/")
    assert found.keys() == {"s/head", "s/log/1/1"}
    assert all(0 <= age < 60 for age in found.values())
    assert archive.names("") == ["s/head", "s/log/1/1", "t/head"]


def test_several_objects_are_returned_in_the_requested_order(archive):
    put = ["s/log/1/2", "s/head", "s/log/1/1"]
    for name in put:
        archive.create(name, name.encode())
    found = archive.read_all([*put, "not/there", put[0]])
    assert [each and each.data for each in found] == [*(name.encode() for name in put), None, put[0].encode()]
    assert found[1].token == archive.look("s/head")
    assert archive.read_all([]) == []


def test_several_handles_see_the_same_objects(storage):
    url, options = storage
    one, other = open_archive(url, **options), open_archive(url, **options)
    token = one.create("s/head", b"first")
    assert other.create("s/head", b"second") is Outcome.REFUSED
    assert isinstance(other.swap("s/head", b"second", token), str)
    assert one.swap("s/head", b"third", token) is Outcome.REFUSED
    one.close()
    assert other.read("s/head").data == b"second"
    other.close()


def test_a_sound_storage_passes_the_probe_and_keeps_nothing_of_it(archive):
    archive.create("s/head", b"")
    probe(archive)
    assert archive.names("") == ["s/head"]


def test_each_scheme_is_tested_in_a_forked_child_or_has_a_reason():
    tree = ast.parse(inspect.getsource(open_archive))
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare) and ast.unparse(node.left) == "scheme"]
    schemes = {each.value for node in compared for each in ast.walk(node) if isinstance(each, ast.Constant)}
    assert schemes == KEEPS_A_CONNECTION.keys() | NOT_FORKED.keys()


@pytest.mark.skipif(sys.platform == "win32", reason="nothing forks there")
@pytest.mark.parametrize("storage", KEEPS_A_CONNECTION.values(), indirect=True)
def test_a_forked_child_gets_an_error_that_says_to_open_the_storage_again(archive):
    archive.create("s/head", b"first")
    requests = {
        "read": lambda: archive.read("s/head"),
        "look": lambda: archive.look("s/head"),
        "create": lambda: archive.create("t/head", b""),
        "swap": lambda: archive.swap("s/head", b"", "token"),
        "names": lambda: archive.names(""),
        "remove": lambda: archive.remove(["s/head"]),
        "ages": lambda: archive.ages(""),
        "read_all": lambda: archive.read_all(["s/head", "t/head"]),
    }
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for name, request in requests.items():
                try:
                    request()
                except ForkedError:
                    os.write(write_end, f"{name} ".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        assert told.read().split() == [*requests]
    assert os.waitpid(child, 0)[1] == 0
    assert archive.read("s/head").data == b"first"

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import oracles
import pytest

if TYPE_CHECKING:
    from types import ModuleType

FUZZ = Path(__file__).parents[2] / "native" / "fuzz"
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.c"))
FINDING = 3


def has_sanitizers() -> bool:
    """Whether the compiler that native/fuzz/run.py takes can link a sanitized program."""
    if shutil.which("gcc") is None:
        return False
    probe = ["gcc", "-fsanitize=address,undefined", "-x", "c", "-", "-o", "/dev/null"]
    return subprocess.run(probe, input=b"int main(void){return 0;}", capture_output=True, check=False).returncode == 0


needs_sanitizers = pytest.mark.skipif(not has_sanitizers(), reason="no gcc with ASan and UBSan")


def load_seeds() -> ModuleType:
    spec = importlib.util.spec_from_file_location("seed_corpus", FUZZ / "seed_corpus.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SEEDS = load_seeds()
CORPUS = SEEDS.corpus()


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, FUZZ / "run.py", *options], capture_output=True, text=True, check=False, timeout=300
    )


def test_committed_corpus_holds_every_seed():
    assert {name: (FUZZ / "corpus" / name).read_bytes() for name in CORPUS} == CORPUS


def test_every_target_has_a_corpus():
    assert sorted(path.name for path in (FUZZ / "corpus").iterdir()) == TARGETS


@pytest.mark.parametrize("name", SEEDS.ITEMS)
def test_seed_is_an_item_of_the_profile(name):
    oracles.cbor_check(bytes.fromhex(SEEDS.ITEMS[name]))


@pytest.mark.parametrize("name", SEEDS.CHUNKS)
def test_seed_is_a_chunk(name):
    kind, content, locators = SEEDS.CHUNKS[name]
    assert oracles.entries_table(content + locators, len(content), 1, is_root=False, kind=kind)


@pytest.mark.parametrize("name", SEEDS.ROOTS)
def test_seed_is_a_root(name):
    kind, content, locators = SEEDS.ROOTS[name]
    assert oracles.root_read(content + locators, len(content), 1)[0] == kind


@pytest.mark.parametrize("name", [name for name in CORPUS if name.startswith("record/")])
def test_seed_is_a_record(name):
    oracles.record_nodes(CORPUS[name])


@pytest.mark.parametrize("name", SEEDS.ARRAYS)
def test_seed_is_an_array_of_msgpack(name):
    assert oracles.msgpack_split(CORPUS[f"msgpack/{name}"])


@pytest.mark.parametrize("name", ["page/one", "page/full", "page/expired_between"])
def test_seed_is_a_page(name):
    oracles.page_parse(CORPUS[name][1:])


@needs_sanitizers
@pytest.mark.soak
def test_corpus_replays_without_a_finding():
    replay = run("--seconds", "1")
    assert (replay.returncode, replay.stderr) == (0, "")
    assert replay.stdout.count("nothing found") == len(TARGETS)


@needs_sanitizers
@pytest.mark.soak
def test_planted_overread_is_found():
    replay = run("--seconds", "1", "--plant")
    assert replay.returncode == FINDING
    assert "heap-buffer-overflow" in replay.stderr

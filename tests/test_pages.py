"""What README.md and the guides show runs, twice in a row; what they say can be read; what they link to is there."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import forks
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SOURCE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
REFERENCES = {"DESIGN.md", "FORMAT.md", "EXPORT.md", "CHANGELOG.md"}
PAGES = sorted(
    [
        README,
        ROOT / "benchmarks" / "BENCHMARKS.md",
        *(page for page in (ROOT / "statelog").rglob("*.md") if page.name not in REFERENCES),
    ],
    key=lambda page: page.as_posix(),
)
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
LEFT_OUT = re.compile(r"\b(pip|pipx|uv|uvx|apt-get)\b|<!--|^statelog demo ", flags=re.MULTILINE)
"""What needs an index of packages, and the demo, which tests/cli/demo runs."""
FRAMEWORKS = {
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "google_adk": "google.adk",
    "crewai": "crewai",
    "claude_agent_sdk": "claude_agent_sdk",
    "strands": "strands",
    "agent_framework": "agent_framework",
    "autogen": "autogen_core",
    "guard": "re2",
    "otel": "opentelemetry.sdk",
}
"""By the folder of a page: the module without which its code does not run."""
WORDS_MEAN_MAX, WORDS_95TH_MAX = 16, 30


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Return (language, code) of what runs here."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language, code) for language, code in found if language == "python" or not LEFT_OUT.search(code)]


@pytest.fixture(scope="module")
def search_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The PATH of a shell that forks for each `python` and `statelog`: a page starts up to 80 of them."""
    folder = tmp_path_factory.mktemp("bin")
    with forks.commands(folder):
        yield os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_pages_blocks_run_in_order(page: Path, tmp_path: Path, search_path: str) -> None:
    """One after the other in one directory, as a reader pastes them."""
    run_blocks(page, tmp_path, search_path, times=1)


@pytest.mark.soak
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_pages_blocks_run_in_order_and_again(page: Path, tmp_path: Path, search_path: str) -> None:
    run_blocks(page, tmp_path, search_path, times=2)


def run_blocks(page: Path, tmp_path: Path, search_path: str, times: int) -> None:
    blocks = blocks_of(page)
    if any("langgraph" in code for _language, code in blocks):
        pytest.importorskip("langgraph.checkpoint.sqlite", reason="LangGraph or its SqliteSaver is not installed")
    framework = FRAMEWORKS.get(page.parent.name)
    if framework is not None:
        pytest.importorskip(framework, exc_type=ImportError)
    warnings = "error" if framework is None else "ignore"  # frameworks warn of each other
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 600}
    options["env"] = os.environ | {"PATH": search_path}
    for _time in range(times):
        for language, code in blocks:
            if language == "python":
                done = forks.run([sys.executable, "-W", warnings, "-c", code], **options)
            else:
                done = subprocess.run(["sh", "-e", "-c", code], check=False, **options)
            assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
def test_the_readme_prints_the_output_that_it_shows(tmp_path: Path) -> None:
    """The loop that is killed, and its output below it."""
    text = README.read_text(encoding="utf-8")
    code, shown = re.findall(r"```sh\n(cat > loop\.py.*?)```.*?```text\n(.*?)```", text, flags=re.DOTALL)[0]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [shutil.which("bash") or "sh", "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in shown.splitlines() if line != "Killed"] == done.stdout.splitlines()


PRINTS = re.compile(r"^```python\n((?:(?!```).)*)^```\n\n```text\n((?:(?!```).)*)^```$", flags=re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("durable/GUIDE.md", 4),
        ("durable/WORKERS.md", 4),
        ("fleet/GUIDE.md", 3),
        ("guard/GUIDE.md", 4),
        ("otel/GUIDE.md", 1),
        ("search/GUIDE.md", 1),
    ],
)
def test_some_pages_print_the_output_that_they_show(name: str, least: int, tmp_path: Path) -> None:
    if (framework := FRAMEWORKS.get(Path(name).parent.name)) is not None:
        pytest.importorskip(framework)
    examples = PRINTS.findall((ROOT / "statelog" / name).read_text(encoding="utf-8"))
    assert len(examples) >= least
    for code, shown in examples:
        command = [sys.executable, "-c", code]
        done = forks.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.stdout == shown, done.stderr


def test_readme_is_short() -> None:
    assert README.read_text(encoding="utf-8").count("\n") <= 150


def test_set_up_is_two_lines() -> None:
    text = README.read_text(encoding="utf-8")
    for mark in ("<!-- demo line -->", "<!-- test line -->"):
        block = re.search(re.escape(mark) + r"\n```sh\n(.*?)```", text, flags=re.DOTALL)
        assert block is not None
        assert block.group(1).count("\n") == 1


def test_every_link_of_the_readme_is_absolute() -> None:
    """PyPI shows README.md without the files beside it."""
    links = re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not link.startswith(f"{SOURCE}/blob/main/")] == []


def files_linked(page: Path) -> list[Path]:
    """Return the files of this repository that a page links to."""
    text = page.read_text(encoding="utf-8")
    relative = [page.parent / target for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)]
    return relative + [ROOT / target for target in re.findall(rf"\]\({SOURCE}/blob/main/([^)#]+)(?:#[^)]*)?\)", text)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_a_page_links_to_exists(page: Path) -> None:
    for file in files_linked(page):
        assert file.exists(), file


def test_readme_leads_to_every_page() -> None:
    seen: set[Path] = set()
    waiting = [README]
    while waiting:
        page = waiting.pop().resolve()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            waiting += files_linked(page)
    assert {page.resolve() for page in PAGES} <= seen


# --- plain words ----------------------------------------------------------------------------


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a page's paragraphs and lists; not of code, tables and headings."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^(\||#).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "\n\n", text, flags=re.MULTILINE)
    paragraphs = re.split(r"\n\s*\n", text)
    found = []
    for paragraph in paragraphs:
        found += re.split(r"(?<=[.!?:])\s+(?=[A-Z\d*_(\"']|code)", " ".join(paragraph.split()))
    return [sentence for sentence in found if re.search(r"\w", sentence)]


def lengths_of(page: Path) -> list[int]:
    return [len(sentence.split()) for sentence in sentences_of(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_pages_sentences_are_short(page: Path) -> None:
    lengths = sorted(lengths_of(page))
    long = [each for each in sentences_of(page.read_text(encoding="utf-8")) if len(each.split()) > WORDS_95TH_MAX]
    assert statistics.mean(lengths) <= WORDS_MEAN_MAX
    assert lengths[(len(lengths) - 1) * 95 // 100] <= WORDS_95TH_MAX, "\n".join(long)


def test_sentences_are_told_apart_and_long_ones_found() -> None:
    """A negative control of the measure."""
    text = "# Head\n\nOne two. Three `x y` four: five.\n\n- six\n- seven eight.\n\n| a | b |\n\n```sh\nno\n```\n"
    assert [each.split() for each in sentences_of(text)] == [
        ["One", "two."], ["Three", "code", "four:", "five."], ["six"], ["seven", "eight."]
    ]  # fmt: skip
    assert len(sentences_of("word " * 40 + ".")[0].split()) > WORDS_95TH_MAX

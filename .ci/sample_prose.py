"""Print docstrings, comments and error messages drawn at random, for a reader to judge.

`python .ci/sample_prose.py --seed 7 --rooms statelog/tree native` prints the same passages every time.
"""

import argparse
import ast
import io
import random
import re
import tokenize
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
C_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/', re.DOTALL)
C_MESSAGE = re.compile(r'\b(?:PyErr_SetString|PyErr_Format|sl_raise\w*)\([^;]*?"((?:\\.|[^"\\])*)"')
PRAGMA = re.compile(r"#\s*(?:noqa|type:|fmt:|pragma|ruff|!|-{3})")


class Passage(NamedTuple):
    """One docstring, comment or message, and the lines it occupies."""

    kind: str
    path: Path
    line: int
    end: int
    owner: str
    text: str


def read_docstrings(path, tree):
    """Yield the docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", [])
        for before, each in zip([None, *body], body, strict=False) if isinstance(body, list) else ():
            if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
                continue
            if isinstance(each.value.value, str):
                owner = ast.unparse(before).split("\n")[0] if before else getattr(node, "name", "module")
                if before is None and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    owner += f"({ast.unparse(node.args)})"
                text = each.value.value
                yield Passage("docstring", path, each.lineno, each.end_lineno or each.lineno, owner, text)


def read_messages(path, tree):
    """Yield the texts that are raised: arguments of errors, and what is assigned to `message`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            is_message = any(isinstance(each, ast.Name) and each.id == "message" for each in node.targets)
            values = [node.value] if is_message else []
        elif isinstance(node, ast.Call) and re.search(r"(Error|Refused|Warning)\b", ast.unparse(node.func)):
            values = node.args
        else:
            continue
        for value in values:
            if isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str)):
                text = ast.unparse(value)
                yield Passage("message", path, value.lineno, value.end_lineno or value.lineno, "", text)


def read_comments(path, source):
    """Yield comments, those of consecutive lines as one."""
    lines = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or PRAGMA.match(token.string):
            continue
        is_alone = not token.line[: token.start[1]].strip()
        if lines and not (is_alone and lines[-1][2] and lines[-1][0] == token.start[0] - 1):
            yield _joined(path, lines)
            lines = []
        lines.append((token.start[0], token.string.lstrip("# "), is_alone, token.line))
    if lines:
        yield _joined(path, lines)


def _joined(path, lines):
    owner = "" if lines[0][2] else lines[0][3].split("#")[0].strip()
    return Passage("comment", path, lines[0][0], lines[-1][0], owner, "\n".join(each[1] for each in lines))


def read_c(path, source):
    """Yield the comments and the messages of a C file."""
    for match in C_COMMENT.finditer(source):
        if match[0].startswith("/*") and not match[0].startswith("/* ---"):
            line = source.count("\n", 0, match.start()) + 1
            owner = source[source.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
            text = "\n".join(each.strip().lstrip("*").strip() for each in match[0][2:-2].strip().split("\n"))
            yield Passage("comment", path, line, line + match[0].count("\n"), owner, text)
    for match in C_MESSAGE.finditer(source):
        line = source.count("\n", 0, match.start(1)) + 1
        yield Passage("message", path, line, line, "", match[1])


def read_rooms(rooms):
    """Return the passages of files and directories, in order."""
    found = []
    for room in rooms:
        top = ROOT / room
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.suffix in {".c", ".h"}:
                found += read_c(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
            elif path.suffix == ".py":
                source = path.read_text(encoding="utf-8")
                tree = ast.parse(source)
                for passages in (read_docstrings, read_messages):
                    found += passages(path.relative_to(ROOT), tree)
                found += read_comments(path.relative_to(ROOT), source)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rooms", nargs="+", default=["statelog", "native"], help="files or directories")
    parser.add_argument("--docstrings", type=int, default=100)
    parser.add_argument("--comments", type=int, default=60)
    parser.add_argument("--messages", type=int, default=30)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    passages = read_rooms(options.rooms)
    for kind in ("docstring", "comment", "message"):
        of_kind = [each for each in passages if each.kind == kind]
        for each in chance.sample(of_kind, min(getattr(options, kind + "s"), len(of_kind))):
            print(f"--- {kind} {each.path}:{each.line} {each.owner}\n{each.text}\n")


if __name__ == "__main__":
    main()

"""The files of the page: its modules as one script, and its HTML.

A browser requests one script and one style. Their URLs contain their digests, so the browser may cache them.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function\*? (\w+)|(?:const|class) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)

Answers = list[list[Any]]
"""Answers that the page need not request: [key, answer], with the key that `asked` returns for the request."""


def read(name: str) -> str:
    """Return the contents of one of the page's files."""
    return files("statelog.inspector").joinpath("page", name).read_text("utf-8")


def bundle(entry: str) -> str:
    """Return the modules that an entry needs as one script. Each module becomes a function that returns its exports.

    A module imports `{ names }` or `* as name` from "./NAME.js", and exports functions, classes and constants where it
    defines them.
    """
    written: dict[str, str] = {}

    def add(name: str) -> None:
        text = read(name)
        for _names, _whole, imported in _IMPORT.findall(text):
            if imported not in written:
                add(imported)
        exports = [function or other for function, other in _EXPORT.findall(text)]
        body = _EXPORT.sub("", _IMPORT.sub(_imported, text))
        left = _LEFT.search(body)
        assert left is None, f"{name}: {left[0]}"
        written[name] = f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();\n"

    add(entry)
    return "".join(written.values())


def _imported(found: re.Match[str]) -> str:
    names, whole, module = found.groups()
    return f"const {whole or '{' + names + '}'} = {_variable(module)};\n"


def _variable(module: str) -> str:
    return f"module_{module.removesuffix('.js')}"


def digest(text: str) -> str:
    """Return the digest of a script or style in the form that a Content-Security-Policy uses."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def asked(path: str, query: Iterable[tuple[str, str]] = ()) -> str:
    """Return the key of a request to the API, as `api.js` makes it."""
    return json.dumps([path, *sorted(map(list, query))], ensure_ascii=False, separators=(",", ":"))


def data(answers: Answers, parts: list[Any], *, is_whole: bool) -> str:
    """Return answers as the contents of an inert element. It has no `<` that could end the element.

    Args:
        answers: the answers that the page need not request.
        parts: the values to which `{"$part": number}` in answers refers.
        is_whole: True if no server can return the rest.
    """
    document = {"parts": parts, "answers": answers, "is_whole": is_whole}
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")


def html(head: str, script: str, answers: str) -> str:
    """Return the HTML of the page.

    Args:
        head: the elements of the head.
        script: the script element.
        answers: the result of `data`.
    """
    text = read("index.html")
    for mark, content in (("<!-- head -->", head), ("<!-- script -->", script), ("<!-- answers -->", answers)):
        before, _, after = text.partition(mark)
        text = before + content + after
    return text

"""The JSON answers to the page. Handlers run in worker threads, and errors of the store keep their facts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from statelog.errors import (
    AccessError,
    ConflictError,
    LimitError,
    NotFoundError,
    ReadOnlyError,
    StatelogError,
    StorageError,
    UsageError,
)
from statelog.format import cbor

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.requests import Request

Read = Callable[["Request"], Any]
"""A function that answers a GET. It takes the request, and returns a value for `json.dumps`."""
Write = Callable[["Request", Mapping[str, Any]], Any]
"""A function that answers a POST. It takes the request and its JSON object, and returns a value for `json.dumps`."""
Endpoint = Callable[["Request"], "Awaitable[Response]"]

BODY_SIZE_BYTES_MAX = 4 << 20
"""The maximum size of a request. It is enough for edits of one value."""
_LIST_LIMIT_MAX = 500

_STATUS = (
    (NotFoundError, 404),
    (ReadOnlyError, 403),
    (AccessError, 403),
    (UsageError, 400),
    (ConflictError, 409),
    (LimitError, 413),
    (StorageError, 503),
)


def reading(answer: Read) -> Endpoint:
    """Return an endpoint that answers a GET with `answer`, which runs in a worker thread."""

    async def endpoint(request: Request) -> Response:
        try:
            return as_json(await run_in_threadpool(cbor.decoded_loosely, answer, request))
        except StatelogError as error:
            return of_error(error)

    return endpoint


def writing(answer: Write) -> Endpoint:
    """Return an endpoint that answers a POST of a JSON object with `answer`, which runs in a worker thread."""

    async def endpoint(request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > BODY_SIZE_BYTES_MAX:
                message = f"the request has more than {BODY_SIZE_BYTES_MAX:,} bytes"
                return of_error(LimitError(message, limit=BODY_SIZE_BYTES_MAX))
        try:
            return as_json(await run_in_threadpool(answer, request, _decode(bytes(body))))
        except StatelogError as error:
            return of_error(error)

    return endpoint


def _decode(body: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError) as error:
        message = f"the request is not JSON: {error}"
        raise UsageError(message) from None
    if not isinstance(decoded, dict):
        message = f"the request must be a JSON object, not {type(decoded).__name__}"
        raise UsageError(message)
    return decoded


def as_json(document: object, status: int = 200) -> Response:
    """Return a JSON response in ASCII, which every encoding can represent."""
    return Response(json.dumps(document, allow_nan=False), status, media_type="application/json")


def of_error(error: StatelogError) -> Response:
    """Return the HTTP response that reports an error of the store: {error, message, facts}."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    return as_json(error_document(error), status)


def error_document(error: StatelogError) -> dict[str, Any]:
    """Return an error of the store as JSON: {error, message, facts}."""
    facts = {name: _plain(value) for name, value in error.facts.items()}
    return {"error": type(error).__name__, "message": error.message, "facts": facts}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | str) else str(value)


# --- parameters of requests --------------------------------------------------------


def whole_number(request: Request, name: str, default: int, *, maximum: int = 2**63) -> int:
    """Return a query parameter that is a non-negative int.

    Raises:
        UsageError: the parameter is not a non-negative int. Facts: argument, value.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= maximum):
        message = f"{name} must be a whole number from 0 to {maximum}, not {text[:40]!r}"
        raise UsageError(message, argument=name, value=text[:40])
    return int(text)


def page_limit(request: Request, default: int = 50) -> int:
    """Return the query parameter `limit`: the maximum number of items of a list in one answer."""
    return min(max(whole_number(request, "limit", default), 1), _LIST_LIMIT_MAX)


def cursor(request: Request, name: str = "after") -> str:
    """Return the cursor at which a page of a list begins; empty for the first page."""
    return str(request.query_params.get(name, ""))  # `str` is for type checkers that lack Starlette.


def needed(request: Request, name: str) -> str:
    """Return a query parameter. Raise UsageError if it is missing or empty."""
    text: str = request.query_params.get(name, "")
    if not text:
        message = f"the URL needs the parameter {name}="
        raise UsageError(message, argument=name)
    return text


def is_set(request: Request, name: str) -> bool:
    """Return True if a query parameter is 1, False if it is 0 or missing. Otherwise raise UsageError."""
    text = request.query_params.get(name, "0")
    if text not in ("0", "1"):
        message = f"{name} must be 0 or 1, not {text[:40]!r}"
        raise UsageError(message, argument=name, value=text[:40])
    return bool(text == "1")


def text_of(body: Mapping[str, Any], name: str) -> str:
    """Return the string `name` in the object of a POST. Raise UsageError if it is missing, empty or not a str."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        message = f"{name} must be a str, not {value!r:.40}"
        raise UsageError(message, argument=name)
    return value


def json_of(body: Mapping[str, Any], name: str) -> Any:
    """Decode the JSON string `name` in the object of a POST. Return None if it is missing or empty.

    Raises:
        UsageError: the string is not JSON. Facts: argument.
    """
    text = body.get(name)
    if text is None or text == "":
        return None
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{name} is not JSON: {error}"
        raise UsageError(message, argument=name) from None

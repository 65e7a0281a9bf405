"""The middleware in front of the app. It checks who and which page sent a request, and restricts the browser.

DESIGN.md gives the reasons for each check.
"""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
WRITE_HEADER = "x-statelog"
"""A header that a form of another page cannot send. Its value does not matter."""
_API = "/api/"
_UNLOCKED = ("same-origin", "none")
_NO_TOKEN = "Open the address that `statelog ui` has printed. It has the token that this page needs.\n"  # noqa: S105 - this text is not a token


class AccessMiddleware:
    """An ASGI middleware that accepts only requests from the person who started the server."""

    def __init__(self, app: ASGIApp, *, token: str, host: str, allow_writes: bool) -> None:
        """Guard `app`.

        Args:
            app: handles the accepted requests.
            token: the secret in the printed URL.
            host: the address and the port of the server, with a colon.
            allow_writes: whether requests other than GET and HEAD are accepted.
        """
        self._app = app
        self._token = token.encode()
        self._address, _, self._port = host.rpartition(":")
        self._allow_writes = allow_writes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the app."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # Refuse WebSockets, which the app does not have.
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        answer = refusal or self._entrance(scope, headers) or self._app
        await answer(scope, receive, _protected(send, is_api=scope["path"].startswith(_API)))

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse a request from a foreign page, or a write that is not allowed. Return None for any other request."""
        if not self._is_ours(headers.get("host", "")):
            return _refused("This server accepts requests only at its own address.")
        is_write = scope["method"] not in ("GET", "HEAD")
        site = headers.get("sec-fetch-site", "none")
        # A person may follow a link with the token from another site. Refuse a wrong token even if there is a cookie.
        brings_token = any(name == "token" and self._is_token(value) for name, value in _query(scope))
        if site not in _UNLOCKED and (is_write or not brings_token):
            return _refused("This server does not accept requests from other sites.")
        origin = headers.get("origin")
        if origin is not None and (not origin.startswith("http://") or not self._is_ours(origin[len("http://") :])):
            return _refused("This server does not accept requests from other origins.")
        if not is_write:
            return None
        if not self._allow_writes:
            return _refused("The store is open for reading. `statelog ui --allow-writes` lets this page change it.")
        is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
        if origin is None or WRITE_HEADER not in headers or not is_json or scope["method"] != "POST":
            return _refused("A write must be a POST of JSON with the headers Origin and X-Statelog.")
        return None

    def _is_ours(self, host: str) -> bool:
        """Return True if `host` is this server's address and port, not a name that may resolve to another address."""
        name, _, port = host.rpartition(":")
        if port != self._port:
            return False
        if name in (self._address, "localhost"):
            return True
        return self._address in ("0.0.0.0", "[::]") and _is_address(name)  # noqa: S104 - the address is compared, not bound

    def _entrance(self, scope: Scope, headers: Headers) -> Response | None:
        """Redirect a request with the token, and set the cookie. Refuse a request with neither token nor cookie."""
        query = _query(scope)
        cookie = f"statelog-{self._port}"
        for name, value in query:
            if name == "token" and self._is_token(value):
                rest = urlencode([pair for pair in query if pair[0] != "token"])
                # Strip slashes: a redirect to a path that begins with two slashes would lead to a different host.
                redirect = RedirectResponse("/" + scope["path"].lstrip("/") + (f"?{rest}" if rest else ""), 303)
                redirect.set_cookie(cookie, value, httponly=True, samesite="strict", path="/")
                return redirect
        if self._is_token(cookie_parser(headers.get("cookie", "")).get(cookie, "")):
            return None
        return _refused(_NO_TOKEN)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self._token)


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _is_address(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _refused(why: str) -> Response:
    return PlainTextResponse(why, 403)


def _protected(send: Send, *, is_api: bool) -> Send:
    """Return a `send` that adds to each answer the headers that restrict the browser."""

    async def protected(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["content-security-policy"] = CONTENT_SECURITY_POLICY
            headers["x-content-type-options"] = "nosniff"
            headers["referrer-policy"] = "no-referrer"
            headers["cross-origin-resource-policy"] = "same-origin"
            headers["cross-origin-opener-policy"] = "same-origin"
            if is_api or "cache-control" not in headers:
                headers["cache-control"] = "no-store"
        await send(message)

    return protected

"""Who gets an answer: tokens, hosts, origins, and what answers forbid a browser."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from click.testing import CliRunner
from served import HOSTILE
from starlette.testclient import TestClient

import statelog
from statelog import durable
from statelog.cli import main
from statelog.inspector.security import CONTENT_SECURITY_POLICY
from statelog.inspector.server import make_app

HOST = "127.0.0.1:7777"
TOKEN = "correct-horse"
WRITE = {"x-statelog": "1", "origin": f"http://{HOST}", "content-type": "application/json"}


def talk():
    durable.current_step().stream("a part")


@durable.workflow
def streaming(run):
    run.step(talk)


@pytest.fixture
def client_of(store_path):
    stores = []

    def make(*, token=TOKEN, read_only=True, host=HOST, asked=HOST):
        store = statelog.open(store_path, read_only=read_only)
        stores.append(store)
        client = TestClient(make_app(store, token=TOKEN, host=host), base_url=f"http://{asked}", follow_redirects=False)
        if token is not None:
            client.cookies.set(f"statelog-{host.rpartition(':')[2]}", token)
        return client

    yield make
    for store in stores:
        store.close()


def test_the_token_becomes_a_cookie_and_leaves_the_address(client_of):
    client = client_of(token=None)
    answer = client.get(f"/?token={TOKEN}&view=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?view=1")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/api/store").status_code == 200


def test_a_redirect_stays_on_this_server(client_of):
    answer = client_of(token=None).get(f"http://{HOST}//elsewhere.example/x?token={TOKEN}")
    assert answer.headers["location"] == "/elsewhere.example/x"


@pytest.mark.parametrize("path", ["/", "/page/none.js", "/api/store", "/api/threads", "/api/live"])
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", "\u00e9"])
def test_nothing_is_answered_without_the_token(client_of, path, token):
    headers = {} if token is None else {"cookie": f"statelog-7777={token}".encode()}
    assert client_of(token=None).get(path, headers=headers).status_code == 403


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example:7777",
        "127.0.0.1:7778",
        "127.0.0.1",
        "127.0.0.1.attacker.example:7777",
        "localhost.attacker.example:7777",
        "attacker.example:7777@127.0.0.1:7777",
        "[::1]:7777",
        "",
    ],
)
def test_another_host_is_refused(client_of, host):
    assert client_of().get("/api/store", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", [HOST, "localhost:7777"])
def test_the_own_host_is_answered(client_of, host):
    assert client_of().get("/api/store", headers={"host": host}).status_code == 200


def test_a_server_on_all_addresses_takes_addresses_and_no_names(client_of):
    client = client_of(host="0.0.0.0:7777")
    assert client.get("/api/store", headers={"host": "192.168.3.4:7777"}).status_code == 200
    assert client.get("/api/store", headers={"host": "attacker.example:7777"}).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_is_refused(client_of, site):
    assert client_of().get("/api/store", headers={"sec-fetch-site": site}).status_code == 403


def test_a_wrong_token_does_not_let_a_page_of_another_site_use_the_cookie(client_of):
    client = client_of()
    assert client.get("/api/store?token=wrong", headers={"sec-fetch-site": "same-site"}).status_code == 403
    assert client.get(f"/?token={TOKEN}", headers={"sec-fetch-site": "cross-site"}).status_code == 303


@pytest.mark.parametrize("host", ["", " "])
def test_an_empty_host_is_refused_because_it_would_mean_all_addresses(store_path, host):
    answer = CliRunner().invoke(main, ["ui", str(store_path), "--host", host])
    assert answer.exit_code == 2
    assert "--host needs an address" in answer.output


@pytest.mark.parametrize("origin", ["http://attacker.example", "null", "https://127.0.0.1:7777", "http://127.0.0.1:1"])
def test_another_origin_is_refused(client_of, origin):
    assert client_of().get("/api/store", headers={"origin": origin}).status_code == 403


@pytest.mark.parametrize("path", ["/", "/api/threads", "/page/main.js", "/nothing"])
def test_every_answer_binds_the_browser(client_of, path):
    headers = client_of().get(path).headers
    assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


def test_the_policy_allows_no_inline_script():
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'")


@pytest.mark.parametrize(
    "path",
    [
        "/page/../server.py",
        "/page/..%2fserver.py",
        "/page/%2e%2e/server.py",
        "/page/%2e%2e%2f%2e%2e%2fstore/store.py",
        "/page//etc/passwd",
        "/../../etc/passwd",
        "/page/main.js/../../security.py",
        "/page/",
    ],
)
def test_a_path_reaches_no_other_file(client_of, path):
    assert client_of().get(path).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/api/threads", "/api/nothing", "/"])
def test_writes_are_refused_if_the_store_is_read_only(client_of, method, path):
    answer = client_of().request(method, path, headers=WRITE, content="{}")
    assert answer.status_code == 403
    assert "--allow-writes" in answer.text


@pytest.mark.parametrize("missing", sorted(WRITE))
def test_a_write_without_one_of_its_marks_is_refused(client_of, missing):
    client = client_of(read_only=False)
    headers = {name: value for name, value in WRITE.items() if name != missing}
    assert client.post("/api/nothing", headers=headers, content="{}").status_code == 403
    assert client.post("/api/nothing", headers=WRITE, content="{}").status_code == 404


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_write_of_a_form_is_refused(client_of, kind):
    client = client_of(read_only=False)
    assert client.post("/api/nothing", headers={**WRITE, "content-type": kind}, content="{}").status_code == 403


def test_hostile_ids_are_json_and_nothing_else(client_of):
    answer = client_of().get("/api/threads")
    assert answer.headers["content-type"] == "application/json"
    assert HOSTILE in [thread["id"] for thread in answer.json()["threads"]]
    assert answer.text.isascii()


@pytest.mark.parametrize("after", ["x", "1", "1-2-3", "-1", "9" * 20 + "-1", "1-\u0661"])
def test_a_forged_cursor_is_refused_with_its_facts(client_of, after):
    answer = client_of().get("/api/threads", params={"after": after})
    assert answer.status_code == 400
    assert answer.json()["error"] == "UsageError"
    assert answer.json()["facts"] == {"argument": "after", "value": after}


@pytest.mark.parametrize("limit", ["-1", "x", "1e3", "\u0661"])
def test_a_limit_that_is_not_a_number_is_refused(client_of, limit):
    assert client_of().get("/api/threads", params={"limit": limit}).status_code == 400


def test_every_thread_is_listed_once_whatever_the_page(client_of):
    client = client_of()
    seen, after = [], ""
    while after is not None:
        answer = client.get("/api/threads", params={"limit": 1, "after": after}).json()
        seen += [thread["id"] for thread in answer["threads"]]
        after = answer["next"]
    assert len(seen) == len(set(seen)) == 3


def test_threads_of_streams_are_listed_only_if_they_are_searched_for(client_of, store_path):
    with statelog.open(store_path) as store:
        durable.run(store, streaming, id="run-1")
    client = client_of()
    first = client.get("/api/threads").json()
    rest = client.get("/api/threads", params={"after": first["next"]}).json()
    assert [row["id"] for row in first["threads"] + rest["threads"] if "stream" in row["id"]] == []
    assert rest["total"] == 4
    found = client.get("/api/threads", params={"containing": "statelog:stream"}).json()["threads"]
    assert [row["id"] for row in found] == ["statelog:stream/run-1"]


def test_a_script_may_be_kept_because_its_address_names_its_text(client_of):
    client = client_of()
    path = re.search(r'src="(page/[0-9a-f]{16}\.js)"', client.get("/").text)[1]
    answer = client.get(f"/{path}")
    assert answer.headers["cache-control"].endswith("immutable")
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert hashlib.sha256(answer.content).hexdigest().startswith(path.partition("/")[2][:16])


def test_answers_in_the_page_cannot_end_their_element(client_of):
    text = client_of().get("/").text
    data = text.partition('id="answers">')[2].partition("</script>")[0]
    assert HOSTILE in [each["id"] for each in dict(json.loads(data)["answers"])['["threads"]']["threads"]]
    assert "<" not in data

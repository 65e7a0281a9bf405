"""Events of one Slack thread, each in a process of its own, at once, and killed."""

import http.server
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("langgraph", reason="needs the extra langgraph")

from langchain_core.messages import HumanMessage

import statelog
from statelog.adapters.langgraph import StatelogSaver
from statelog.examples import slack_resume

WAIT_S = 60.0


class Endpoint:
    """A server on loopback that honours Idempotency-Key, and can be told to keep its answers back, or to refuse."""

    def __init__(self):
        self.requests = []
        self.posts = {}
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.arrived = threading.Condition()
        self.status = 200
        self.length = "0"
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.take(self.headers["Idempotency-Key"], body)
                endpoint.may_answer.wait(WAIT_S)
                try:
                    self.send_response(endpoint.status)
                    self.send_header("Content-Length", endpoint.length)
                    self.send_header("Location", "/elsewhere")
                    self.end_headers()
                except OSError:
                    self.close_connection = True  # the client was killed

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/reply"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def take(self, key, body):
        with self.arrived:
            self.requests.append((key, body))
            if self.status == 200:
                assert self.posts.setdefault(key, body) == body, "one key, two replies"
            self.arrived.notify_all()

    def wait_for_requests(self, count):
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, WAIT_S)

    @property
    def texts(self):
        return [body["text"] for body in self.posts.values()]

    def close(self):
        self.may_answer.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def endpoint():
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture
def start(path, endpoint):
    """Start the script on one event; what still runs at the end is killed."""
    started = []

    def start_one(event, **environment):
        process = subprocess.Popen(
            [sys.executable, "-m", "statelog.examples.slack_resume"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "STATELOG_FILE": str(path), "REPLY_URL": endpoint.url, **environment},
        )
        started.append(process)
        process.stdin.write(event if isinstance(event, bytes) else json.dumps(event).encode())
        process.stdin.close()
        process.stdin = None
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start):
    """Run the script on one event; return its exit code and what it said."""

    def run_one(event, **environment):
        process = start(event, **environment)
        _, said = process.communicate(timeout=WAIT_S)
        return process.returncode, said.decode()

    return run_one


def event(number, *, thread_ts="100.1", channel="C1"):
    message = {
        "type": "message",
        "channel": channel,
        "ts": f"100.{number}",
        "thread_ts": thread_ts,
        "text": f"m{number}",
    }
    return {
        "specversion": "1.0",
        "id": f"Ev{number}",
        "source": "/slack/T1",
        "type": "com.slack.message",
        "data": {"event": message},
    }


def conversation(path, thread_id="slack:C1:100.1"):
    with StatelogSaver.open(path) as saver:
        found = saver.get_tuple({"configurable": {"thread_id": thread_id}})
    return [message.text for message in found.checkpoint["channel_values"]["messages"]]


def is_whole(texts, numbers):
    """Whether it is each message and its reply, those of each number once, in some order."""
    asked, answered = texts[::2], texts[1::2]
    replies = [f"{2 * place + 1}: you said {text!r}" for place, text in enumerate(asked)]
    return answered == replies and sorted(asked) == sorted(f"m{number}" for number in numbers)


def test_each_event_is_answered_in_a_process_of_its_own(run, path, endpoint):
    assert [run(event(number)) for number in range(3)] == [(0, "")] * 3
    assert conversation(path) == [
        "m0", "1: you said 'm0'", "m1", "3: you said 'm1'", "m2", "5: you said 'm2'",
    ]  # fmt: skip
    assert endpoint.texts == conversation(path)[1::2]
    assert endpoint.requests[0][1] == {"channel": "C1", "thread_ts": "100.1", "text": "1: you said 'm0'"}
    assert len(endpoint.requests) == 3


def test_an_event_delivered_again_is_not_answered_again(run, path, endpoint):
    for number in (0, 1, 0, 1, 1):
        assert run(event(number)) == (0, "")
    assert is_whole(conversation(path), range(2))
    assert len(endpoint.requests) == 2


def test_a_message_that_begins_a_thread_is_found_by_those_that_follow(run, path):
    first = event(1)
    del first["data"]["event"]["thread_ts"]
    first["data"] = first["data"]["event"]
    assert run(first) == run(event(2)) == (0, "")
    assert is_whole(conversation(path), [1, 2])


def test_two_processes_on_one_thread_follow_each_other(start, path, endpoint):
    endpoint.may_answer.clear()
    first = start(event(1))
    endpoint.wait_for_requests(1)
    second = start(event(2))
    other_thread = start(event(3, thread_ts="200.1"))
    endpoint.wait_for_requests(2)
    time.sleep(1.0)  # long enough for the second to start, and to be seen if it did not wait
    # By key: on a busy machine the first reply may have timed out, and have been sent again.
    assert [body["thread_ts"] for body in endpoint.posts.values()] == ["100.1", "200.1"]
    endpoint.may_answer.set()
    assert [process.wait(WAIT_S) for process in (first, second, other_thread)] == [0, 0, 0]
    assert conversation(path) == ["m1", "1: you said 'm1'", "m2", "3: you said 'm2'"]
    assert len(endpoint.requests) == len(endpoint.posts) == 3


def test_many_processes_at_once_leave_a_whole_conversation(start, path, endpoint):
    processes = [start(event(number)) for number in range(5)]
    assert [process.wait(WAIT_S) for process in processes] == [0] * 5
    assert is_whole(conversation(path), range(5))
    assert sorted(endpoint.texts) == sorted(conversation(path)[1::2])
    assert len(endpoint.requests) == 5


@pytest.mark.soak
def test_workers_without_a_shared_disk_answer_each_event_once(start, run, tmp_path, endpoint):
    """Two machines, kills between them; the conversation lies in a fleet."""
    pytest.importorskip("zstandard")
    from statelog.fleet import connect

    (tmp_path / "bucket").mkdir()
    fleet = f"file://{tmp_path}/bucket"

    def on(machine):
        caches = {"STATELOG_CACHE": str(tmp_path / machine)}
        return {"STATELOG_FLEET": fleet, "STATELOG_FLEET_TTL_S": "1", **caches}

    for turn in range(3):
        endpoint.may_answer.clear()
        killed = start(event(2 * turn), **on("ab"[turn % 2]))
        endpoint.wait_for_requests(len(endpoint.requests) + 1)
        killed.kill()
        assert killed.wait(WAIT_S) == -signal.SIGKILL
        endpoint.may_answer.set()
        for number in (2 * turn + 1, 2 * turn):
            assert run(event(number), **on("ba"[turn % 2]))[0] == slack_resume.DONE
    assert len(endpoint.posts) == 6
    with connect(fleet, tmp_path / "c") as opened, opened.open("slack:C1:100.1") as store:
        found = StatelogSaver(store).get_tuple({"configurable": {"thread_id": "slack:C1:100.1"}})
    assert is_whole([message.text for message in found.checkpoint["channel_values"]["messages"]], range(6))


def test_a_process_killed_while_it_posts_is_finished_by_the_next(start, run, path, endpoint):
    """Killed after the endpoint has the reply, before any checkpoint says so: the key keeps it from counting twice."""
    endpoint.may_answer.clear()
    first = start(event(1))
    endpoint.wait_for_requests(1)
    second = start(event(2))
    first.kill()
    assert first.wait(WAIT_S) == -signal.SIGKILL
    endpoint.may_answer.set()
    assert second.wait(WAIT_S) == 0
    assert conversation(path) == ["m1", "1: you said 'm1'", "m2", "3: you said 'm2'"]
    assert endpoint.texts == conversation(path)[1::2]
    assert len(endpoint.requests) == 3
    assert run(event(1)) == (0, "")
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize("commit", [1, 4, *(pytest.param(nth, marks=pytest.mark.soak) for nth in (2, 3, 5, 6))])
def test_a_process_killed_at_any_commit_is_finished(run, path, endpoint, commit):
    killed, _ = run(event(1), STATELOG_FAULT=f"commit.after_delivery:{commit}:kill")
    assert run(event(2)) == (0, "")
    assert run(event(1)) == (0, "")
    # A task's writes and the checkpoint before it come from two threads: together they are one commit, of six or fewer.
    assert killed == -signal.SIGKILL or (commit > 3 and killed == 0)
    assert is_whole(conversation(path), [1, 2])
    assert sorted(endpoint.texts) == sorted(conversation(path)[1::2])
    with statelog.open(path) as store:
        assert store.verify().ok


@pytest.mark.parametrize("node", ["reply", "post"])
def test_a_task_whose_writes_are_stored_and_not_applied_is_finished(path, endpoint, monkeypatch, node):
    """Killed between the writes of a task and the checkpoint that has them: LangGraph then lists no next node."""
    monkeypatch.setenv("REPLY_URL", endpoint.url)
    first, second = (slack_resume.read_event(io.BytesIO(json.dumps(event(number)).encode())) for number in (1, 2))
    with StatelogSaver.open(path) as saver:
        config = {"configurable": {"thread_id": first.thread_id}}
        graph = slack_resume.build(saver)
        graph.invoke({"messages": [HumanMessage(first.text, id=first.id)]}, config, interrupt_before=[node])
        found = saver.get_tuple(config)
        state = found.checkpoint["channel_values"]
        updates = {"reply": slack_resume.reply, "post": lambda state: slack_resume.post(state, config)}[node](state)
        [task] = graph.get_state(config).tasks
        after = {"reply": [("branch:to:post", None)], "post": []}[node]
        saver.put_writes(found.config, [*updates.items(), *after], task.id, f"~__pregel_pull, {node}")
        assert graph.get_state(config).next == ()
    slack_resume.answer(second, path)
    assert is_whole(conversation(path), [1, 2])
    assert len(endpoint.requests) == len(endpoint.posts) == 2


@pytest.mark.parametrize("status", [503, pytest.param(302, marks=pytest.mark.soak)])
def test_a_reply_that_is_refused_is_posted_when_the_event_comes_again(run, path, endpoint, status):
    endpoint.status = status
    code, said = run(event(1))
    assert (code, said.count("\n")) == (75, 1)
    assert str(status) in said
    endpoint.status = 200
    assert run(event(1)) == (0, "")
    assert is_whole(conversation(path), [1])
    assert len(endpoint.posts) == 1
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"no json", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a CloudEvents"),
        (b'{"specversion": "1.0", "id": "1", "source": "/s"}', "not a Slack event"),
        (b'{"specversion": "1.0", "id": "1", "source": "/s", "data": {"channel": "C", "ts": "1"}}', "no text"),
        (b'{"specversion": "1.0", "id": 1, "source": "/s", "data": {}}', "no id"),
        (
            b'{"specversion": "1.0", "id": "\\ud800", "source": "/s", "data": {"channel": "C", "ts": "1"}}',
            "lone surrogate",
        ),
        (b" " * 1_100_000, "at most"),
    ],
)
def test_invalid_events_are_refused_and_change_nothing(run, path, raw, says):
    code, said = run(raw)
    assert (code, said.count("\n"), path.exists()) == (2, 1, False)
    assert says in said


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "http://host:abc/", "http://[host/", "http://a b/"])
def test_without_an_endpoint_nothing_is_done(run, path, url):
    code, said = run(event(1), REPLY_URL=url)
    assert (code, "REPLY_URL" in said, path.exists()) == (2, True, False)


@pytest.mark.parametrize("channel", ["C:1", "C" * 500, 7])
def test_a_channel_that_is_none_of_slack_s_is_refused(run, path, channel):
    code, said = run(event(1, channel=channel))
    assert (code, "channel" in said, path.exists()) == (2, True, False)


def test_an_unusable_file_causes_no_second_delivery(run, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    code, said = run(event(1), STATELOG_FILE=str(tmp_path / "file" / "s"), REPLY_URL="http://localhost:9")
    assert (code, said.count("\n")) == (2, 1)
    (tmp_path / "other").write_bytes(b"no store at all" * 1000)
    assert run(event(1), STATELOG_FILE=str(tmp_path / "other"), REPLY_URL="http://localhost:9")[0] == 2
    (tmp_path / "agent.state-runs").mkdir()
    code, said = run(event(1), STATELOG_FILE=str(tmp_path / "agent.state"), REPLY_URL="http://localhost:9")
    assert (code, said.count("\n"), "STATELOG_FILE" in said) == (2, 1, True)
    assert run(event(1), STATELOG_FILE=str(tmp_path / ("n" * 300)), REPLY_URL="http://localhost:9")[0] == 2


def test_a_lock_that_cannot_be_had_is_a_reason_to_deliver_again(run, tmp_path):
    (tmp_path / "agent.state-runs").symlink_to(tmp_path / "agent.state-runs")  # ELOOP, as other errors of a disk
    code, said = run(event(1), STATELOG_FILE=str(tmp_path / "agent.state"), REPLY_URL="http://localhost:9")
    assert (code, said.count("\n")) == (75, 1)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_a_server_that_answers_for_ever_holds_no_process(path, monkeypatch, head):
    ends = threading.Event()

    def trickle():
        connection, _ = listener.accept()
        with connection:
            connection.sendall(head)
            while not ends.wait(0.05):
                connection.sendall(b"a" if not head else b"A: b\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=trickle)
        server.start()
        monkeypatch.setenv("REPLY_URL", f"http://127.0.0.1:{listener.getsockname()[1]}/")
        monkeypatch.setattr(slack_resume, "POST_TIMEOUT_S", 0.5)
        try:
            with pytest.raises(TimeoutError, match=r"0\.5 s"):
                slack_resume.answer(slack_resume.read_event(io.BytesIO(json.dumps(event(1)).encode())), path)
        finally:
            ends.set()
            server.join()


def test_an_answer_without_an_end_is_an_answer(run, endpoint):
    endpoint.length = "1000000000"
    assert run(event(1)) == (0, "")
    assert endpoint.texts == ["1: you said 'm1'"]

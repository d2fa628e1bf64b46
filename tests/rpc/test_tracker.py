"""Trackers: who is free, who waits, and who comes back."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sterna import rpc
from sterna.rpc.processes import children_of
from sterna.rpc.tracker import Matches, Registered
from sterna.testing.fuzz.fuzzer import find_fuzzer
from sterna.testing.fuzz.tape import Tape
from tests.rpc.support import SECRET, TestServer, wait_until
from tests.support import ROOT, clean_environment

# Clients share servers for so long.
SECONDS = 8


@pytest.fixture
def tracker() -> Iterator[rpc.Tracker]:
    made = rpc.Tracker(port=0, silent=True)
    yield made
    made.terminate()


def board(tracker: rpc.Tracker, **settings: Any) -> TestServer:
    """A server at a tracker."""
    return TestServer(key="board", tracker=("127.0.0.1", tracker.port), **settings)


def state_of(session: rpc.TrackerSession) -> list[str]:
    """The states of all servers."""
    return [each["state"] for each in session.summary()["server_info"]]


def test_a_server_is_handed_out_and_comes_back(tracker: rpc.Tracker) -> None:
    server = board(tracker)
    session = rpc.connect_tracker("127.0.0.1", tracker.port)
    with session.request("board", session_timeout=30) as remote:
        assert remote.get_function("test.add_one")(1) == 2
        wait_until(lambda: state_of(session) == ["busy"])
        (row,) = session.summary()["server_info"]
        assert row["key"] == "server:board" and row["holder"].startswith("127.0.0.1:")
        assert "server:board" in session.text_summary()
    wait_until(lambda: state_of(session) == ["free"])
    assert session.summary()["queue_info"] == {"board": {"total": 1, "free": 1, "pending": 0}}
    with pytest.raises(rpc.RPCError, match="clients of its tracker only"):
        server.connect(key="board")
    assert session.request_and_run("board", lambda remote: remote.listdir()) == []
    server.stop()
    wait_until(lambda: state_of(session) == [])
    session.close()


def test_a_client_that_dies_gives_its_server_back(tracker: rpc.Tracker) -> None:
    server = board(tracker)
    session = rpc.connect_tracker("127.0.0.1", tracker.port)
    code = (
        "import sys; from sterna import rpc\n"
        "t = rpc.connect_tracker('127.0.0.1', int(sys.argv[1]))\n"
        "r = t.request('board'); print('has it', flush=True); r.get_function('test.spin')()"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", code, str(tracker.port)], stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None and client.stdout.readline() == "has it\n"
    client.kill()
    client.wait()
    client.stdout.close()
    with session.request("board") as remote:
        assert remote.get_function("test.add_one")(1) == 2
    session.close()
    server.stop()


def test_a_client_that_does_not_come_loses_its_turn(
    tracker: rpc.Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sterna.rpc.tracker.LEASE_S", 2.0)
    server = board(tracker)
    session = rpc.connect_tracker("127.0.0.1", tracker.port)
    session._call("tracker.request", "board", "", 1)  # takes it and does not connect
    wait_until(lambda: state_of(session) == ["free"])
    session.request("board").close()
    session.close()
    server.stop()


def test_a_tracker_that_is_restarted_finds_its_servers_again() -> None:
    first = rpc.Tracker(port=0, silent=True)
    server = board(first)
    session = rpc.connect_tracker("127.0.0.1", first.port)
    session.request("board").close()
    first.terminate()
    second = rpc.Tracker(port=first.port, port_end=first.port, silent=True)
    with session.request("board") as remote:
        assert remote.get_function("test.add_one")(1) == 2
    session.close()
    server.stop()
    second.terminate()


def wait_for_pending(session: rpc.TrackerSession, count: int) -> None:
    wait_until(lambda: session.summary()["queue_info"]["board"]["pending"] == count)


def test_a_line_to_the_tracker_that_is_killed_is_made_anew(tracker: rpc.Tracker) -> None:
    server = board(tracker)
    with rpc.connect_tracker("127.0.0.1", tracker.port) as session:
        session.request("board").close()
        wait_until(lambda: state_of(session) == ["free"])
        (line,) = children_of(server.process.pid)
        os.kill(line, signal.SIGKILL)
        session.request("board").close()
        wait_until(lambda: state_of(session) == ["free"])
        assert children_of(server.process.pid) != [line]
    server.stop()


def test_higher_priorities_go_first(tracker: rpc.Tracker) -> None:
    server = board(tracker)
    holder = rpc.connect_tracker("127.0.0.1", tracker.port)
    held = holder.request("board")
    order: list[int] = []

    def ask(priority: int) -> None:
        with rpc.connect_tracker("127.0.0.1", tracker.port) as session:
            session.request("board", priority=priority).close()
            order.append(priority)

    threads = []
    for number, priority in enumerate((1, 3, 2, 3)):
        threads.append(threading.Thread(target=ask, args=(priority,)))
        threads[-1].start()
        wait_for_pending(holder, number + 1)
    held.close()
    for thread in threads:
        thread.join(30)
    assert order == [3, 3, 2, 1]
    holder.close()
    server.stop()


def test_a_request_of_a_client_that_left_is_forgotten(tracker: rpc.Tracker) -> None:
    session = rpc.connect_tracker("127.0.0.1", tracker.port)
    waiting = rpc.connect_tracker("127.0.0.1", tracker.port)
    peer = waiting._peer
    assert peer is not None

    def ask() -> None:
        with pytest.raises(rpc.RPCError):
            peer.call("tracker.request", "none", "", 1)

    def pending() -> int:
        found: int = session.summary()["queue_info"].get("none", {}).get("pending", 0)
        return found

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: pending() == 1)
    peer.stream.close()
    thread.join(10)
    wait_until(lambda: pending() == 0)
    session.close()


def test_the_environment_names_the_tracker(
    tracker: rpc.Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="TVM_TRACKER_HOST"):
        rpc.connect_tracker()
    monkeypatch.setenv("TVM_TRACKER_HOST", "127.0.0.1")
    monkeypatch.setenv("TVM_TRACKER_PORT", str(tracker.port))
    with rpc.connect_tracker() as session:
        with pytest.raises(ValueError, match="TVM_TRACKER_KEY"):
            session.request()
        monkeypatch.setenv("TVM_TRACKER_KEY", "board")
        server = board(tracker)
        session.request().close()
        server.stop()


def test_a_server_says_where_it_is_reached(tracker: rpc.Tracker) -> None:
    server = board(tracker, custom_addr="localhost")
    with rpc.connect_tracker("127.0.0.1", tracker.port) as session:
        session.request("board").close()
        (row,) = session.summary()["server_info"]
        assert row["addr"] == ["localhost", server.port]
    server.stop()


def test_strangers_ask_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_RPC_SECRET", SECRET)
    tracker = rpc.Tracker(port=0, silent=True)
    rpc.connect_tracker("127.0.0.1", tracker.port).close()
    code = f"from sterna import rpc; rpc.connect_tracker('127.0.0.1', {tracker.port})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT,
        env=clean_environment(STERNA_RPC_SECRET="other"),
    )
    assert "PermissionError" in done.stderr and "the secret is wrong" in done.stderr
    tracker.terminate()


def test_the_programs_work_together() -> None:
    env = clean_environment(STERNA_RPC_SECRET="")
    start = [sys.executable, "-m"]
    tracker = subprocess.Popen(
        [*start, "sterna.exec.rpc_tracker", "--port=0"], stderr=subprocess.PIPE, text=True, env=env
    )
    assert tracker.stderr is not None
    port = tracker.stderr.readline().rpartition(":")[2].strip()
    server = subprocess.Popen(
        [*start, "sterna.exec.rpc_server", "--port=0", f"--tracker=127.0.0.1:{port}", "--key=rpi4",
         "--silent"], env=env,
    )
    with rpc.connect_tracker("127.0.0.1", int(port)) as session:
        session.request("rpi4").close()
        asked = subprocess.run(
            [*start, "sterna.exec.query_rpc_tracker", "--port", port], capture_output=True,
            text=True, timeout=60, env=env,
        )
        assert asked.returncode == 0 and "server:rpi4" in asked.stdout
    for process in (server, tracker):
        process.terminate()
        process.wait(10)
    tracker.stderr.close()


def test_many_clients_share_few_servers(tracker: rpc.Tracker) -> None:
    servers = [board(tracker) for _ in range(4)]
    end = time.monotonic() + SECONDS
    done = [0] * 64
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with rpc.connect_tracker("127.0.0.1", tracker.port) as session:
                while not done[number] or time.monotonic() < end:
                    with session.request("board", session_timeout=60) as remote:
                        assert remote.get_function("test.add_one")(number) == number + 1
                    done[number] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 120)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads)
    assert min(done) >= 1 and max(done) <= min(done) + 3, done  # everyone in turn
    for server in servers:
        server.stop()


def test_nothing_is_kept_of_clients_that_left_while_they_waited() -> None:
    async def leave() -> tuple[Matches, list[bool]]:
        matches = Matches()
        others = [matches.ask("board", "other", priority) for priority in (1, 2)]
        for number in range(3):
            key = f"board {number}"
            matches.withdraw(key, matches.ask(key, "me", 1))
        matches.withdraw("board", others[0])
        matches.servers.append(Registered("board", "host", 1))
        matches.update(matches.servers[0], "match", "")
        return matches, [each.done() for each in others]

    matches, given = asyncio.run(leave())
    assert given == [False, True] and matches.waiting == {}
    assert set(matches.summary()["queue_info"]) == {"board"}


def test_hostile_peers_lose_their_own_connection_only() -> None:
    fuzzer = find_fuzzer("sterna.testing.fuzz.fuzzers.meeting_points")
    ended = {fuzzer.check(Tape(seed)) for seed in range(12)}
    assert ended == {"tracker", "proxy"}
    # A call whose name is a list.
    assert fuzzer.check(Tape(values=[0, 0, 0, 0, 0, 2, *[0] * 18, 14])) == "tracker"

"""The live page's server: for this machine alone, drawn only when something is new, whole again after trouble."""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.report import live
from podsrl.report.html import write_report
from podsrl.report.live import LivePage, serve

Make = Callable[..., Any]
NOTHING: dict[str, Any] = {"steps": [], "evaluations": [], "groups": []}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(live, "COST", 0.0)


@pytest.fixture
def run(tmp_path: Path, make_run: Make) -> Path:
    folder: Path = make_run(tmp_path / "run", **NOTHING)
    return folder


@pytest.fixture
def server(run: Path) -> Iterator[live._Server]:
    with live._Server(("127.0.0.1", 0), live._Handler) as found:
        found.page = LivePage([run])
        thread = threading.Thread(target=found.serve_forever, args=(0.02,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def ask(server: live._Server, path: str = "/", host: str = "127.0.0.1", method: str = "GET") -> tuple[Any, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request(method, path, headers={"Host": f"{host}:{server.server_port}"})
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def tag_of(page: str) -> str:
    (tag,) = re.findall(r'data-tag="(\w+)"', page)
    return str(tag)


def append(file: Path, line: dict[str, Any]) -> None:
    with file.open("a") as log:
        log.write(json.dumps(line) + "\n")


def test_the_page_says_how_far_a_run_is_and_how_long_the_rest_takes(
    tmp_path: Path, make_run: Make, make_step: Make
) -> None:
    """Steps of 1.5 s, 4 of 40 done: 36 are left, in 54 s."""
    run = make_run(tmp_path / "run", steps=[make_step(step) for step in range(1, 5)])
    (run / "config.toml").write_text((run / "config.toml").read_text() + "[stop]\nsteps = 40\n")
    page = LivePage([run]).current()[1]
    assert '<progress max="1" value="0.1"></progress> step 4 of 40 · 1.5 s per step · 5 rollouts/s · 54 s left' in page
    (run / "finished.json").write_text("{}")
    assert "<progress" not in LivePage([run]).current()[1]


def test_the_page_is_sent_again_only_where_something_is_new(server: live._Server, run: Path, make_group: Make) -> None:
    answer, page = ask(server)
    assert answer.status == 200 and "No groups were recorded" in page
    assert ask(server, f"/?since={tag_of(page)}")[0].status == 204
    append(run / "groups.jsonl", make_group(7))
    answer, newer = ask(server, f"/?since={tag_of(page)}")
    assert answer.status == 200 and "step 7" in newer and tag_of(newer) != tag_of(page)
    (run / "finished.json").write_text("{}")
    assert 'data-state="finished"' in ask(server, f"/?since={tag_of(newer)}")[1]


def test_all_pages_are_drawn_in_one_thread(run: Path, make_group: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fonts that matplotlib holds open belong to a thread."""
    drawn: list[int] = []
    render = live.render_report
    monkeypatch.setattr(
        live, "render_report", lambda *a, **k: [drawn.append(threading.get_ident()), render(*a, **k)][1]
    )
    page = LivePage([run])
    for step in range(3):
        append(run / "groups.jsonl", make_group(step))
        if step == 0:
            page.current()
        else:  # each request has a thread of its own
            with ThreadPoolExecutor(1) as asking:
                asking.submit(page.current).result()
    assert len(drawn) == 3 and len(set(drawn)) == 1 and drawn[0] != threading.get_ident()


def test_only_who_asks_for_this_machine_by_its_name_gets_the_page(server: live._Server) -> None:
    assert ask(server, host="localhost")[0].status == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "[::1]", ""):
        answer, text = ask(server, host=host)
        assert answer.status == 403 and "podsrl report" not in text
    assert ask(server, "/../../etc/passwd")[0].status == 404
    assert ask(server, method="POST")[0].status == 501
    assert ask(server, method="HEAD")[1] == ""


def test_the_live_page_may_ask_its_server_and_the_written_page_nobody(server: live._Server, run: Path) -> None:
    answer, page = ask(server)
    assert "connect-src 'self'" in page and "default-src 'none'" in page
    assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert "Access-Control-Allow-Origin" not in answer.headers
    written = write_report([run], run / "report.html").read_text()
    for word in ("connect-src", "fetch(", 'http-equiv="refresh"', 'id="live"'):
        assert word in page and word not in written


def test_a_log_that_is_broken_for_a_moment_leaves_the_last_page(run: Path, make_group: Make) -> None:
    page = LivePage([run])
    tag, text = page.current()
    append(run / "groups.jsonl", make_group(1))
    whole = (run / "groups.jsonl").read_bytes()
    (run / "groups.jsonl").write_bytes(b"not json\n" + whole)
    assert page.current() == (tag, text) and "groups.jsonl, line 1" in page.problem
    (run / "groups.jsonl").write_bytes(whole)
    assert "step 1" in page.current()[1] and page.problem == ""


def test_the_page_says_that_its_folder_is_gone(server: live._Server, run: Path) -> None:
    tag = tag_of(ask(server)[1])
    run.rename(run.with_name("moved"))
    answer, text = ask(server, f"/?since={tag}")
    assert answer.status == 503 and "run is no folder" in text


def test_a_run_without_a_line_and_a_comparison_without_a_run_have_a_page(tmp_path: Path, run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    assert "No groups were recorded" in LivePage([run]).current()[1]
    (tmp_path / "cmp").mkdir()
    (tmp_path / "cmp" / "compare.toml").touch()
    tag, text = LivePage([tmp_path / "cmp"]).current()
    assert tag == "" and "no run has begun yet" in text and 'http-equiv="refresh"' in text


def test_a_browser_that_goes_away_prints_nothing(server: live._Server, capsys: pytest.CaptureFixture[str]) -> None:
    for error in (BrokenPipeError(), ConnectionResetError(), RuntimeError("a defect")):
        try:
            raise error
        except Exception:
            server.handle_error(None, ("127.0.0.1", 1))
    shown = capsys.readouterr().err
    assert "a defect" in shown and "BrokenPipe" not in shown and "ConnectionReset" not in shown


def test_between_two_drawings_there_is_a_pause(run: Path, make_group: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LEAST_SECONDS", 3600.0)
    page = LivePage([run])
    before = page.current()
    append(run / "groups.jsonl", make_group(1))
    assert page.current() == before


def test_usage_errors_come_before_anything_is_served(tmp_path: Path, run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {port}: .*0 for any"):
            serve([run], port, print)
    with pytest.raises(UsageError, match="given twice"):
        serve([run, run], 0, print)
    with pytest.raises(UsageError, match="nowhere is no folder"):
        serve([tmp_path / "nowhere"], 0, print)


def test_a_browser_that_goes_away_is_no_error(
    server: live._Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(server, "shutdown_request", lambda request: (request.close(), ended.set()))
    with socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.sendall(b"GET / HT")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
    assert ended.wait(30)
    assert capfd.readouterr().err == ""


def test_an_address_that_is_none_is_not_found(server: live._Server, capfd: pytest.CaptureFixture[str]) -> None:
    for path in ("http://[", "/%00", "//127.0.0.1/x", "*"):
        assert ask(server, path)[0].status == 404
    assert capfd.readouterr().err == ""

"""Logs that grow while they are read, and files that are written whole or not at all."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from podsrl.errors import UsageError
from podsrl.lib.logs import LogTail, append_line, each_object, last_line, read_lines, read_log, write_atomically


def test_a_crash_while_writing_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    write_atomically(path, "old")

    def crash(_: Path, __: Path) -> None:
        raise OSError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(OSError, match="power cut"):
            write_atomically(path, "new")
    assert path.read_text() == "old"
    write_atomically(path, "newer")
    assert path.read_text() == "newer"
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.toml"]


def test_a_tail_gives_each_whole_line_once_and_starts_anew_where_a_log_was_cut(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    tail = LogTail(log)
    assert tail.new_lines() == []
    log.write_text('{"step": 1}\n{"step": 2')
    assert tail.new_lines() == [{"step": 1}]
    log.write_text('{"step": 1}\n{"step": 2}\n')
    assert tail.new_lines() == [{"step": 2}] and tail.new_lines() == []
    log.write_text('{"step": 1}\n')
    assert tail.new_lines() == []
    with log.open("a") as file:
        file.write('{"step": 7}\n')
    assert tail.new_lines() == [{"step": 7}] and read_lines(log) == [{"step": 1}, {"step": 7}]


def test_a_tail_goes_on_at_a_whole_line_where_a_log_was_cut_and_has_grown_past_it(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    tail = LogTail(log)
    log.write_text('{"step": 1}\n{"step": 2}\n')
    assert len(tail.new_lines()) == 2
    log.write_text('{"step": 1}\n{"step": 2, "longer": "than before"}\n{"step": 3}\n{"st')
    assert tail.new_lines() == [{"step": 3}]
    log.write_text('{"step": 1, "text": "a line that goes beyond where the tail was')
    assert tail.new_lines() == []
    log.write_text('{"step": 1, "text": "a line that goes beyond where the tail was"}\n{"step": 4}\n')
    assert tail.new_lines() == [{"step": 4}] and tail.new_lines() == []


@pytest.mark.parametrize("line", ['{"step": 2, "rew{"step": 2}', "[1]", "", "\xff"])
def test_a_broken_line_is_named_by_file_and_number(tmp_path: Path, line: str) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text('{"step": 1}\n')
    tail = LogTail(log)
    assert tail.new_lines() == [{"step": 1}]
    with log.open("a") as file:
        file.write('{"step": 2}\n' + line + '\n{"step": 4}\n')
    for read in (tail.new_lines, lambda: read_lines(log)):
        with pytest.raises(UsageError, match=rf"metrics.jsonl, line 3: wanted a JSON object, got '{re.escape(line)}'"):
            read()


def test_a_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".a.json.tmp").symlink_to(tmp_path / "mine")
    write_atomically(tmp_path / "a.json", "new")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "a.json").read_text() == "new" and not (tmp_path / "a.json").is_symlink()


def test_a_log_gives_its_objects_and_counts_a_torn_end(tmp_path: Path) -> None:
    log = tmp_path / "groups.jsonl"
    append_line(log, {"text": "a\u2028b"})
    append_line(log, {"step": 2})
    assert read_log(log) == ([{"text": "a\u2028b"}, {"step": 2}], 0)
    log.write_text('{"step": 1}\n\n{"step": 2}')
    assert read_log(log) == ([{"step": 1}, {"step": 2}], 0)
    log.write_text('{"step": 1}\n{"st')
    assert read_log(log) == ([{"step": 1}], 1)
    log.write_text('{"step": 1}\n\n{"st\n{"step": 2}\n')
    with pytest.raises(UsageError, match=r"""line 3: wanted a JSON object, got '{"st';"""):
        read_log(log)


def test_a_line_that_is_written_while_it_is_read_ends_the_log(tmp_path: Path) -> None:
    log = tmp_path / "groups.jsonl"
    log.write_text('{"step": 1}\n{"st')
    lines = each_object(log)
    assert next(lines) == {"step": 1} and next(lines) is None
    with log.open("a") as file:
        file.write('ep": 2}\n')
    assert list(lines) == []
    assert list(each_object(log)) == [{"step": 1}, {"step": 2}]


def test_a_tail_notices_that_a_resume_wrote_other_lines_in_place_of_those_it_read(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    tail = LogTail(log)
    assert not tail.is_cut()
    log.write_text('{"step": 1}\n{"step": 2}\n{"ste')
    tail.new_lines()
    log.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    assert not tail.is_cut()
    for text in ('{"step": 1}\n', '{"step": 1}\n{"step": 9}\n{"step": 3}\n', ""):
        log.write_text(text)
        assert tail.is_cut()
    log.unlink()
    assert tail.is_cut()


def test_a_tail_reads_a_long_log_in_pieces_of_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(f'{{"step": {step}}}\n' for step in range(50)))
    tail, pieces = LogTail(log), []
    while piece := tail.new_lines(100):
        pieces.append(piece)
    assert [line["step"] for piece in pieces for line in piece] == list(range(50))
    assert max(map(len, pieces)) <= 9


@pytest.mark.parametrize("length", [1, 70_000, 300_000])
@pytest.mark.parametrize("torn", ["", '{"step": 3, "te'])
def test_the_last_whole_line_is_found_however_long_it_is(tmp_path: Path, length: int, torn: str) -> None:
    log = tmp_path / "groups.jsonl"
    assert last_line(log) is None
    log.write_text(torn)
    assert last_line(log) is None
    append_line(log, {"step": 0}) if not torn else log.write_text("")
    append_line(log, {"step": 1, "text": "b" * 10})
    append_line(log, {"step": 2, "text": "a" * length})
    with log.open("a") as file:
        file.write(torn)
    assert last_line(log) == {"step": 2, "text": "a" * length}


def test_a_line_that_is_longer_than_a_piece_is_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    for step, length in enumerate((1000, 1, 5000)):
        append_line(log, {"step": step, "text": length * "a"})
    tail, steps = LogTail(log), []
    while piece := tail.new_lines(100):
        steps += [line["step"] for line in piece]
    assert steps == [0, 1, 2]


def test_a_pipe_in_place_of_a_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    for read in (read_lines, last_line, lambda log: LogTail(log).is_cut()):
        with pytest.raises(UsageError, match=r"metrics.jsonl: is no file: remove it"):
            read(tmp_path / "metrics.jsonl")

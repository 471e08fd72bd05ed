"""TOL-23: the tool that reads text files below the working folder, and nothing else."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopctl import BareLoop, SessionConfig, ToolContext, ToolOutput
from loopctl.testing import ScriptedClient, call
from loopctl.tools.builtin import read, read_text_file

Reading = Callable[[str], ToolOutput]


class Services:
    """A session of which only the working folder is asked."""

    def __init__(self, folder: Path) -> None:
        self.working_folder = folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    (inside / "docs").mkdir(parents=True)
    (inside / "notes.txt").write_text("the code is 42\n", encoding="utf-8")
    (inside / "docs" / "guide.md").write_text("# Guide", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("SECRET", encoding="utf-8")
    return inside


@pytest.fixture
def reading(folder: Path) -> Reading:
    services: Any = Services(folder)

    def read_it(path: str) -> ToolOutput:
        ctx: ToolContext[Any] = ToolContext(
            services, run_id="r", turn=0, call_id="c", name="read_text_file"
        )
        output = read_text_file(path, ctx)
        assert isinstance(output, ToolOutput)
        return output

    return read_it


def test_it_offers_one_argument_and_a_short_description() -> None:
    assert list(read_text_file.input_schema["properties"]) == ["path"]
    assert read_text_file.description == "Read a text file."
    assert read_text_file.read_only
    assert read_text_file.concurrency_safe


@pytest.mark.parametrize("path", ["notes.txt", "./notes.txt", ".//notes.txt"])
def test_a_file_in_the_folder_is_read(reading: Reading, path: str) -> None:
    assert reading(path).content == "the code is 42\n"
    assert not reading(path).is_error


def test_without_a_walk_the_same_files_are_read_and_refused(
    reading: Reading, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_HAS_WALK", False)
    (folder / "out.txt").symlink_to("../secret.txt")
    assert reading("docs/guide.md").content == "# Guide"
    assert "outside" in str(reading("out.txt").content)
    assert reading("docs").content == "'docs' is a folder; it holds 'guide.md'"


def test_a_file_in_a_folder_below_is_read(reading: Reading, folder: Path) -> None:
    assert reading("docs/guide.md").content == "# Guide"
    assert reading(str(folder / "docs" / "guide.md")).content == "# Guide"


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "docs/../../secret.txt", "docs/../notes.txt", "..", "/etc/passwd", "/"],
)
def test_nothing_above_or_beside_the_folder_is_read(reading: Reading, path: str) -> None:
    output = reading(path)
    assert output.is_error
    assert "SECRET" not in str(output.content)
    assert "folder" in str(output.content)


def test_a_folder_whose_name_begins_like_the_working_folder_is_outside(
    reading: Reading, folder: Path
) -> None:
    beside = folder.with_name("inside-too")
    beside.mkdir()
    (beside / "a.txt").write_text("SECRET", encoding="utf-8")
    assert "outside" in str(reading(str(beside / "a.txt")).content)


def test_a_link_inside_is_followed_and_a_link_out_is_refused(
    reading: Reading, folder: Path
) -> None:
    (folder / "latest").symlink_to("docs/guide.md")
    (folder / "also").symlink_to("docs")
    (folder / "out.txt").symlink_to("../secret.txt")
    (folder / "up").symlink_to("..")
    assert reading("latest").content == "# Guide"
    assert reading("also/guide.md").content == "# Guide"
    for path in ("out.txt", "up/secret.txt", "up/inside/../secret.txt"):
        output = reading(path)
        assert output.is_error
        assert "SECRET" not in str(output.content)


def test_a_link_that_is_swapped_in_after_the_check_leads_nowhere(
    reading: Reading, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = read._inside

    def check_then_swap(root: str, path: str) -> str:
        inside = checked(root, path)
        (folder / "docs" / "guide.md").unlink()
        (folder / "docs").rmdir()
        (folder / "docs").symlink_to("..")
        (folder / "notes.txt").unlink()
        (folder / "notes.txt").symlink_to("../secret.txt")
        (folder.parent / "guide.md").write_text("SECRET", encoding="utf-8")
        return inside

    with monkeypatch.context() as patch:
        patch.setattr(read, "_inside", check_then_swap)
        by_folder = reading("docs/guide.md")
    with monkeypatch.context() as patch:
        patch.setattr(read, "_inside", lambda root, path: path)
        by_name = reading("notes.txt")
    for output in (by_folder, by_name):
        assert output.is_error
        assert "SECRET" not in str(output.content)
        assert "secret.txt" not in str(output.content)


def test_what_is_no_regular_file_is_refused_without_waiting(reading: Reading, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(folder)  # the path of a socket must be short
        try:
            listening.bind("sock")
        finally:
            os.chdir(here)
        for path in ("pipe", "sock"):
            output = reading(path)
            assert output.is_error
            assert "not a regular file" in str(output.content)


def test_a_device_is_refused(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_inside", lambda root, path: path.lstrip("/"))
    services: Any = Services(Path("/"))
    ctx: ToolContext[Any] = ToolContext(services, run_id="r", turn=0, call_id="c", name="n")
    output = read_text_file("/dev/zero", ctx)
    assert "not a regular file" in output.content


def test_a_folder_is_refused_with_what_it_holds(reading: Reading, folder: Path) -> None:
    (folder / ".hidden").touch()
    assert reading("docs").content == "'docs' is a folder; it holds 'guide.md'"
    assert reading(".").content == "'.' is a folder; it holds 'docs', 'notes.txt'"


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("note.txt", "'notes.txt'"),
        ("NOTES.TXT", "'notes.txt'"),
        ("docs/guid.md", "'docs/guide.md'"),
        ("doc/notes.txt", "'notes.txt'"),
    ],
)
def test_a_missing_file_comes_with_names_that_are_near(
    reading: Reading, path: str, near: str
) -> None:
    output = reading(path)
    assert output.is_error
    assert output.content == f"there is no file {path!r}; did you mean {near}?"


def test_a_missing_file_without_near_names_comes_with_what_is_there(
    reading: Reading, folder: Path
) -> None:
    assert str(reading("zzz").content).endswith("the working folder holds 'docs', 'notes.txt'")
    (folder / "many").mkdir()
    for number in range(25):
        (folder / "many" / f"file-{number:02}").touch()
    listed = str(reading("many/zzz").content)
    assert listed.endswith("'file-19' and 5 more")
    assert "'many' holds" in listed


def test_a_binary_file_is_refused(reading: Reading, folder: Path) -> None:
    (folder / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    output = reading("image.png")
    assert output.is_error
    assert "binary" in str(output.content)


def test_a_large_file_is_cut_between_characters_and_says_so(reading: Reading, folder: Path) -> None:
    (folder / "large.txt").write_text("a" + "é" * 20_000, encoding="utf-8")
    text = str(reading("large.txt").content)
    assert text.startswith("a" + "é" * 16_383 + "\n[")
    assert text.endswith("[truncated: the first 32768 of 40001 bytes are shown]")
    (folder / "full.txt").write_text("a" * read.MAX_BYTES, encoding="utf-8")
    assert reading("full.txt").content == "a" * read.MAX_BYTES


def test_bytes_that_are_not_utf8_are_replaced_and_it_says_so(
    reading: Reading, folder: Path
) -> None:
    (folder / "latin.txt").write_bytes("café".encode("latin-1"))
    assert reading("latin.txt").content == (
        "caf\ufffd\n[some bytes are not UTF-8 and are shown as \ufffd]"
    )


def test_a_byte_order_mark_is_no_text(reading: Reading, folder: Path) -> None:
    (folder / "bom.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert reading("bom.txt").content == "hello"


def test_an_empty_file_says_that_it_is_empty(reading: Reading, folder: Path) -> None:
    (folder / "empty.txt").touch()
    assert reading("empty.txt").content == "'empty.txt' is empty"
    assert not reading("empty.txt").is_error


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "x" * 5000, "\ud800", "notes.txt/x", "loop"])
def test_a_path_that_cannot_be_is_a_soft_failure(reading: Reading, folder: Path, path: str) -> None:
    (folder / "loop").symlink_to("loop")
    output = reading(path)
    assert output.is_error
    assert output.content


def test_a_file_that_may_not_be_read_says_why(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(read, "_open", refuse)
    assert reading("notes.txt").content == "cannot read 'notes.txt': Permission denied"


def test_no_file_stays_open(reading: Reading, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    before = os.listdir("/dev/fd")
    for path in ("notes.txt", "docs/guide.md", "docs", "zzz", "docs/zzz", "pipe", "../x"):
        reading(path)
    assert os.listdir("/dev/fd") == before


@pytest.mark.anyio
async def test_a_session_reads_off_its_event_loop(folder: Path) -> None:
    """TOL-7: the watchdog fails this test if the file is opened in the event loop's thread."""
    client = ScriptedClient(call("read_text_file", path="notes.txt"), "done")
    agent = BareLoop(client, [read_text_file], SessionConfig(working_folder=str(folder)))
    run = await agent.run("what is the code?")
    assert run.turns[0].calls[0].result.text == "the code is 42\n"

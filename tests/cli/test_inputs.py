"""Files to attach, tools to load, the task."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopctl.cli import inputs
from loopctl.errors import ConfigError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder of its own, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_file_is_pinned_with_its_text(here: Path) -> None:
    (here / "notes.txt").write_text("héllo", encoding="utf-8")
    pinned = inputs.attachment("notes.txt")
    assert pinned.id == "file:notes.txt"
    assert pinned.render() == "[file: notes.txt]\nhéllo"
    (here / "latin.txt").write_bytes(b"caf\xe9")
    assert inputs.attachment("latin.txt").render() == "[file: latin.txt]\ncaf\ufffd"


def test_a_file_that_cannot_be_pinned_says_why(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "image.png").write_bytes(b"\x89PNG\0")
    (here / "folder").mkdir()
    monkeypatch.setattr(inputs, "MAX_ATTACHED", 1 << 20)
    (here / "huge.txt").write_bytes(b"x" * ((1 << 20) + 1))
    for name, why in {
        "gone.txt": "No such file",
        "folder": "Is a directory",
        "image.png": "binary",
        "huge.txt": "larger than 1 MiB",
    }.items():
        with pytest.raises(ConfigError, match=f"--attach {name}: .*{why}"):
            inputs.attachment(name)


def test_tools_come_from_modules_of_the_current_folder(here: Path) -> None:
    (here / "mine.py").write_text(
        "def one(): ...\ndef two(): ...\nboth = [one, two]\nclass Box:\n    inner = one\n"
    )
    import_one = inputs.tools("mine:one")
    module = sys.modules["mine"]
    assert import_one == [module.one]
    assert inputs.tools("mine:both") == [module.one, module.two]
    assert inputs.tools("mine:Box.inner") == [module.one]


def test_tools_that_cannot_be_loaded_say_why(here: Path) -> None:
    (here / "mine.py").write_text("def search(): ...\n")
    (here / "broken.py").write_text("def x(:\n")
    (here / "leaving.py").write_text("raise SystemExit(3)\n")
    (here / "needing.py").write_text("import no_such_thing\n")
    for reference, why in {
        "mine": "write module:object",
        "mine:": "write module:object",
        ":search": "write module:object",
        "mine:serach": "has no 'serach'; did you mean 'search'",
        "mine:zzz": "has no 'zzz'$",
        "gone:x": "no module 'gone'",
        "gone.sub:x": "no module 'gone'",
        ".mine:x": "importing '.mine' failed",
        "broken:x": "importing 'broken' failed with SyntaxError",
        "leaving:x": "importing 'leaving' failed with SystemExit",
        "needing:x": "importing 'needing' failed with ModuleNotFoundError: .*no_such_thing",
    }.items():
        with pytest.raises(ConfigError, match=f"--tools {reference}: .*{why}"):
            inputs.tools(reference)


def typed(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data))


def test_the_task_is_given_or_read() -> None:
    assert inputs.task("do it", None) == "do it"
    assert inputs.task("-", typed("tü es\n".encode())) == "tü es\n"
    assert inputs.task("-", typed(b"caf\xe9")) == "caf\ufffd"


@pytest.mark.parametrize(
    ("text", "stdin"), [("-", typed(b" \n")), ("-", None), ("", None), ("  ", typed(b"x"))]
)
def test_a_task_must_say_something(text: str, stdin: io.TextIOWrapper | None) -> None:
    with pytest.raises(ConfigError, match="empty"):
        inputs.task(text, stdin)

"""The house is as it is described: files, imports, dependencies, README's picture of it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "loopctl"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: nothing is tracked")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_lock_file_is_tracked(tracked: list[Path]) -> None:
    assert [path.name for path in tracked if path.name in {"uv.lock", "package-lock.json"}] == []


def test_no_registry_address_and_no_path_of_a_machine_is_tracked(tracked: list[Path]) -> None:
    words = ["python" + "hosted", "index-" + "url", "find-" + "links", "registry" + ".npmjs"]
    words += ["/" + "root/", "/" + "work/", str(ROOT) + "/"]
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in tracked
        for word in words
        if word in path.read_text(encoding="utf-8", errors="replace").lower()
    ]
    assert found == []


def test_importing_loopctl_imports_no_http_library_and_no_terminal() -> None:
    """MOD-5: `import loopctl` imports no HTTP library."""
    code = "import sys, loopctl; print([m for m in sys.argv[1:] if m in sys.modules])"
    slow = ["httpx", "httpcore", "click", "rich", "openai", "xllamacpp", "trio", "pydantic"]
    made = subprocess.run(
        [sys.executable, "-c", code, *slow], capture_output=True, check=True, text=True, cwd=ROOT
    )
    assert made.stdout == "[]\n"


def test_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_every_module_says_what_it_is_for() -> None:
    modules = [*PACKAGE.rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in sorted(modules)
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_all_events_leave_through_one_module() -> None:
    """ENG-12: one emitter; what else has an event hands it over."""
    library = [path for path in sorted(PACKAGE.rglob("*.py")) if "testing" not in path.parts]
    senders = [
        path.relative_to(PACKAGE).as_posix()
        for path in library
        if re.search(r"send_nowait|_stream\.send\(", path.read_text(encoding="utf-8"))
    ]
    assert senders == ["engine/emitter.py"]


def test_the_driver_is_small_and_has_a_module_for_each_kind_of_step() -> None:
    """ENG-12: ask the machine, do the one thing, feed the answer back."""
    sizes = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in (PACKAGE / "engine").glob("*.py")
    }
    assert {"model_step.py", "tool_step.py", "run.py"} <= sizes.keys()
    assert sizes["run.py"] <= 100
    assert max(sizes.values()) <= 300


def test_readmes_picture_names_every_room_and_no_other() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    picture = re.search(r"^loopctl/\n((?:  .*\n)+)", readme, re.MULTILINE)
    assert picture, "README has no picture of loopctl/"
    lines = [line for line in picture[1].splitlines() if not line.startswith("   ")]
    drawn = [name for line in lines for name in re.split(r"\s{2,}", line.strip())[0].split()]
    assert sorted(drawn) == sorted(_rooms())


def test_the_changelog_has_a_place_for_what_is_not_released() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert headings[0] == "[Unreleased]"


def test_the_core_depends_on_four_packages() -> None:
    names = [Requirement(text).name for text in PROJECT["project"]["dependencies"]]
    assert sorted(names) == ["anyio", "httpx", "pluggy", "pydantic"]


def test_constraints_name_every_direct_dependency_in_a_version_that_it_allows() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    wrong = [
        f"{wanted}: {versions.get(canonicalize_name(wanted.name))}"
        for wanted in _direct_dependencies()
        if not wanted.specifier.contains(
            versions.get(canonicalize_name(wanted.name), "0"), prereleases=True
        )
    ]
    assert wrong == []
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", str(pin)) for pin in pins)


BANNED = {
    "lock = asyncio.Lock()": "anyio.Lock",
    "task = asyncio.create_task(main())": "a task needs an owner",
    "coroutine = asyncio.sleep(1)": "anyio.sleep",
    "future = asyncio.gather()": "a task group of anyio",
    "time.sleep(1)": "blocks the event loop",
    "client = httpx.Client()": "only loopctl/_http.py",
}


@pytest.mark.parametrize(("line", "advice"), BANNED.items())
def test_the_linter_bans_what_works_on_one_backend_or_blocks(line: str, advice: str) -> None:
    code = f'"""Example."""\n\nimport {re.search("asyncio|time|httpx", line)[0]}\n\n{line}\n'  # type: ignore[index]
    name = ["--stdin-filename", "loopctl/example.py", "--output-format", "concise", "-"]
    made = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *name],
        input=code,
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
    )
    assert made.returncode == 1
    assert "TID251" in made.stdout
    assert advice in made.stdout


def _rooms() -> list[str]:
    folders = [f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")]
    return folders + [path.name for path in PACKAGE.glob("*.py")]


def _direct_dependencies() -> list[Requirement]:
    texts = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    for group in PROJECT["project"]["optional-dependencies"].values():
        texts += group
    for group in PROJECT["dependency-groups"].values():
        texts += [item for item in group if isinstance(item, str)]
    wanted = [Requirement(text) for text in texts]
    return [requirement for requirement in wanted if requirement.name != "loopctl"]

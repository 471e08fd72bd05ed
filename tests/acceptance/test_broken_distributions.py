"""CTX-26: broken plugins that are really built and really installed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.built_distributions import Environment, build, project

# What a module tells when it is imported: its own name, in a file.
TELLING = """
import os
with open(os.environ["IMPORTED"], "a", encoding="utf-8") as told:
    told.write(__name__ + "\\n")
"""

GOOD = """
import loopctl

class Plugin:
    def __init__(self, text="{name}"):
        self.text = text

    @loopctl.hookimpl
    def contribute(self, ctx):
        return self.text
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken:
    """What is wrong with a plugin, and what is said about it."""

    says: str
    source: str = GOOD
    change: tuple[str, str] = ("", "")
    entry: str = '{name} = "{module}:Plugin"'
    damage: tuple[str, bytes | None] | None = None
    """A file of its metadata, and what it holds instead; `None` when it is gone."""


def changed(old: str, new: str, says: str) -> Broken:
    return Broken(says=says, change=(old, new))


INIT = "self.text = text"
CONTRIBUTE = "def contribute(self, ctx):"
TOOLS = """return self.text

    @loopctl.hookimpl
    def register_tools(self, register):
        raise OSError("no tools today")"""

BROKEN: dict[str, Broken] = {
    "x01-import-error": Broken(says="No module named 'x01_needs'", source="import x01_needs"),
    "x02-syntax-error": Broken(says="SyntaxError", source="def broken(:"),
    "x03-no-attribute": Broken(says="no attribute 'Plugin'", source="pass"),
    "x04-no-module": Broken(says="No module named 'gone'", entry='{name} = "gone:Plugin"'),
    "x05-exit": Broken(says="SystemExit: 3", source="raise SystemExit(3)"),
    "x06-raises": Broken(says="ValueError: at import", source="raise ValueError('at import')"),
    "x07-constructor": changed(INIT, "raise OSError('no zone')", "OSError: no zone"),
    "x08-constructor-exit": changed(INIT, "raise SystemExit('bye')", "SystemExit: bye"),
    "x09-misspelt": changed("contribute", "contribut", "did you mean contribute(ctx)?"),
    "x10-signature": changed(CONTRIBUTE, "def contribute(self, context):", "does not fit"),
    "x11-default": changed(CONTRIBUTE, "def contribute(self, ctx, x=1):", "has a default"),
    "x12-no-hooks": Broken(says="has no hook marked", source="class Plugin: pass"),
    "x13-unmarked": changed("@loopctl.hookimpl", "", "mark contribute with @loopctl.hookimpl"),
    "x14-setting": Broken(says="unexpected keyword argument 'speed'"),
    "x15-wrapper": changed(".hookimpl", ".hookimpl(wrapper=True)", "wrappers are not supported"),
    "x16-garbage": Broken(says="not of the form module:object", entry='{name} = "no such thing!"'),
    "x17-no-metadata": Broken(says="its metadata", damage=("METADATA", None)),
    "x18-bytes": Broken(
        says="entry_points.txt cannot", damage=("entry_points.txt", b"[loopctl]\n\xff")
    ),
    "x19-tools": changed("return self.text", TOOLS, "register_tools failed: OSError"),
    "x20-twin": Broken(says="distribution m-good has", entry='m-good = "{module}:Plugin"'),
}
GOOD_ONES = ("a-good", "m-good", "z-good")
SETTINGS = '[plugins.x14-setting]\nspeed = 3\n[plugins.z-good]\ntext = "last"\n'


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, loopctl_wheel: Path) -> Environment:
    """loopctl, twenty broken plugins, and a good one before, among and behind them."""
    folder = tmp_path_factory.mktemp("broken")
    projects: list[Path] = []
    for name in (*BROKEN, *GOOD_ONES):
        how = BROKEN.get(name, Broken(says=""))
        module = name.replace("-", "_")
        source = how.source.replace("{name}", name).replace(*how.change)
        entry = how.entry.format(name=name, module=module)
        projects.append(project(folder, name, entry, TELLING + source))
    wheels = folder / "wheels"
    wheels.mkdir()
    made = Environment(folder / "environment")
    made.install([loopctl_wheel, *build(projects, wheels)])
    for name, how in BROKEN.items():
        if how.damage is not None:
            file, content = how.damage
            path = made.packages / f"{name.replace('-', '_')}-1.0.dist-info" / file
            assert path.exists()
            path.unlink() if content is None else path.write_bytes(content)
    return made


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A current folder with settings."""
    (tmp_path / "loopctl.toml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


def imported(folder: Path) -> set[str]:
    """The modules that told of being imported."""
    told = folder / "imported"
    return set(told.read_text(encoding="utf-8").split()) if told.exists() else set()


SCRIPT = """
import json, logging, sys
from loopctl import BareLoop, installed_plugins
from loopctl.testing import ScriptedClient

said = []
class Collecting(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("loopctl.plugins").addHandler(Collecting())

plugins = installed_plugins({"x14-setting": {"speed": 3}, "z-good": {"text": "last"}})
client = ScriptedClient("done")
BareLoop(client, plugins=plugins).run_sync("go")
texts = [message.text for message in client.requests[0].messages]
json.dump([[p.distribution for p in plugins], texts, said], sys.stdout)
"""


def test_each_is_reported_with_its_distribution_and_the_others_contribute(
    environment: Environment, here: Path
) -> None:
    """CTX-26: in a library, whatever is wrong with it."""
    told = str(here / "imported")
    made = environment.run("python", "-c", SCRIPT, folder=here, IMPORTED=told)
    assert made.returncode == 0, made.stderr
    plugins, texts, said = json.loads(made.stdout)
    assert plugins == [*GOOD_ONES]
    assert texts == ["a-good", "m-good", "last", "go"]
    assert len(said) == len(BROKEN) >= 12
    for name, how in BROKEN.items():
        folder = f"{name.replace('-', '_')}-1.0.dist-info"
        ours = [text for text in said if f"distribution {name} " in text or folder in text]
        assert len(ours) == 1, (name, said)
        assert how.says in ours[0]


def test_the_command_lists_each_with_what_to_do(environment: Environment, here: Path) -> None:
    """CTX-26: in the command."""
    told = str(here / "imported")
    made = environment.run("loopctl", "plugins", folder=here, IMPORTED=told)
    assert made.returncode == 0, made.stderr
    table, *troubles = made.stdout.split("\n\n")
    states = [line.split()[-1] for line in table.splitlines()[1:]]
    assert sorted(states) == sorted(["failed"] * len(BROKEN) + ["loaded"] * len(GOOD_ONES))
    assert len(troubles) == len(BROKEN)
    for how in BROKEN.values():
        assert any(how.says in trouble for trouble in troubles), (how, troubles)


def test_what_is_blocked_is_never_imported(environment: Environment, here: Path) -> None:
    """CTX-25, G8: the modules themselves would tell; whose metadata is broken cannot be named."""
    told = str(here / "imported")
    good = ",".join(GOOD_ONES)
    blocked = ",".join(BROKEN)
    for variables in ({"LOOPCTL_DISABLE_PLUGINS": blocked}, {"LOOPCTL_PLUGINS": good}):
        made = environment.run("loopctl", "plugins", folder=here, IMPORTED=told, **variables)
        assert made.returncode == 0, made.stderr
        assert imported(here) == {name.replace("-", "_") for name in GOOD_ONES}
        assert made.stdout.count("blocked") == len(BROKEN) - len({"x17", "x18", "x20"})
        (here / "imported").unlink()
    made = environment.run("loopctl", "--version", folder=here, IMPORTED=told)
    assert made.stdout.startswith("loopctl ")
    assert imported(here) == set()

"""CTX-25, CTX-26: installed plugins, their order, and those that are broken."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import anyio
import pytest

import loopctl
from loopctl import BareLoop, hookimpl, installed_plugins
from loopctl.errors import ConfigError
from loopctl.installed import discover
from loopctl.plugins import InstalledPlugin, PluginRegistry
from loopctl.testing import ScriptedClient, consult
from tests.installed_plugins import GOOD, Site, on_path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The only place where plugins are installed; it lists them in a random order."""

    def shuffled() -> Iterable[Distribution]:
        found = list(distributions(path=[str(tmp_path), str(tmp_path / "later")]))
        random.shuffle(found)
        return sorted(found, key=lambda d: str(d.locate_file("")))  # the path keeps its order

    monkeypatch.setattr("loopctl.installed.distributions", shuffled)
    yield from on_path(tmp_path)


def go(agent: BareLoop[None]) -> None:
    async def once() -> None:
        async with agent:
            await agent.run("go")

    anyio.run(once)


def names(plugins: Iterable[object]) -> list[str]:
    return [plugin.name for plugin in plugins if isinstance(plugin, InstalledPlugin)]


def test_plugins_come_by_normalised_distribution_name_then_entry_point_name(
    site: Site,
) -> None:
    """CTX-5, CTX-25: whatever the file system lists first."""
    site.install("Zeta")
    site.install("beta.x", module="beta_x", entry="m = beta_x:Plugin\na = beta_x:Plugin")
    site.install("Beta-a", module="beta_a", entry="z = beta_a:plugin")
    site.install("alpha")
    for _ in range(5):
        assert names(installed_plugins()) == ["alpha", "z", "a", "m", "Zeta"]


def test_what_an_installed_plugin_contributes_is_in_the_request(site: Site) -> None:
    """CTX-25: installed_plugins gives what a session takes."""
    site.install("clock")
    site.install("git")
    client = ScriptedClient("done")
    go(BareLoop(client, plugins=installed_plugins()))
    assert [m.text for m in client.requests[0].messages] == ["clock", "git", "go"]
    message = anyio.run(consult, installed_plugins()[1])
    assert message is not None
    assert message.text == "git"


def test_a_class_is_made_at_each_call_with_its_settings(site: Site) -> None:
    """CTX-25: settings go by entry-point names; an object is shared as it is."""
    site.install("clock", entry="now = clock:Plugin\nfixed = clock:plugin")
    fixed, now = installed_plugins({"now": {"text": "noon"}})
    again_fixed, again_now = installed_plugins()
    assert isinstance(now, InstalledPlugin)
    assert isinstance(again_now, InstalledPlugin)
    assert (now.name, now.distribution, now.version) == ("now", "clock", "1.0")
    assert now.plugin is not again_now.plugin
    assert getattr(fixed, "plugin", 0) is getattr(again_fixed, "plugin", 1)
    assert [getattr(each.plugin, "text", "") for each in (now, again_now)] == ["noon", "clock"]


def test_only_and_block_act_before_anything_is_imported(site: Site) -> None:
    """CTX-25, CTX-26: what is blocked is never imported."""
    for name in ("a", "b", "c"):
        site.install(f"x-{name}", "raise SystemExit(3)", entry=f"{name} = x_{name}:Plugin")
    site.install("good")
    found = discover(only=["good", "a"], block=["a", "not-there"])
    assert [(each.name, each.state) for each in found] == [
        ("good", "loaded"),
        ("a", "blocked"),
        ("b", "blocked"),
        ("c", "blocked"),
    ]
    assert site.imported() == {"good"}
    assert names(installed_plugins(block=["a", "b", "c"])) == ["good"]
    assert names(installed_plugins(only=[])) == []
    assert site.imported() == {"good"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"only": ["clok"]}, "only: no plugin 'clok' is installed; did you mean 'clock'?"),
        ({"settings": {"clocks": {}}}, "settings: no plugin 'clocks' is installed; did you mean"),
        ({"settings": {"x": {}}}, "no plugin 'x' is installed (there: clock)"),
        ({"settings": {"clock": "noon"}}, "give a mapping of keyword arguments"),
        ({"only": "clock"}, "only='clock': give names, such as ['clock']"),
        ({"block": "clock"}, "block='clock': give names, such as ['clock']"),
    ],
)
def test_a_name_that_cannot_be_meant_is_an_error_before_anything_is_imported(
    site: Site, options: dict[str, Any], says: str
) -> None:
    """CTX-25: the nearest name that is installed is offered."""
    site.install("clock")
    with pytest.raises(ConfigError) as raised:
        installed_plugins(**options)
    assert says in str(raised.value)
    assert site.imported() == set()


HOOKLESS = "class Plugin:\n    pass\n"
MISSPELT = GOOD.format(text="").replace("def contribute(", "def contribut(")
WRONG = GOOD.format(text="").replace("(self, ctx)", "(self, context)")
RAISING = GOOD.format(text="").replace("self.text = text", "raise RuntimeError('no zone')")
QUITTING = GOOD.format(text="").replace("self.text = text", "raise SystemExit('bye')")
OFFLOAD = """
    @property
    def offload(self):
        raise OSError("closed")

plugin ="""
HOSTILE = GOOD.format(text="").replace("\nplugin =", OFFLOAD)

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "b01-no-module": ({"entry": "b01-no-module = b01_gone:Plugin"}, "No module named 'b01_gone'"),
    "b02-import": ({"source": "import b02_needs_this"}, "No module named 'b02_needs_this'"),
    "b03-syntax": ({"source": "def broken(:"}, "SyntaxError: invalid syntax"),
    "b04-attribute": ({"entry": "b04-attribute = b04_attribute:Gone"}, "has no attribute 'Gone'"),
    "b05-exit": ({"source": "import sys; sys.exit(3)"}, "SystemExit: 3"),
    "b06-raises": ({"source": "raise ValueError('at import')"}, "ValueError: at import"),
    "b07-constructor": ({"source": RAISING}, "RuntimeError: no zone"),
    "b08-constructor-exit": ({"source": QUITTING}, "SystemExit: bye"),
    "b09-no-hooks": ({"source": HOOKLESS}, "Plugin has no hook marked with @loopctl.hookimpl"),
    "b10-misspelt": ({"source": MISSPELT}, "did you mean contribute(ctx)?"),
    "b11-wrong": ({"source": WRONG}, "contribute(context) does not fit"),
    "b12-settings": ({}, "TypeError: unknown settings ['speed']"),
    "b13-object": ({"entry": "b13-object = b13_object:plugin"}, "it takes no settings"),
    "b14-reference": ({"entry": "b14-reference = b14 reference!"}, "not of the form module:object"),
    "b15-nameless": ({"metadata": "Version: 1.0\n"}, "its metadata has no name"),
    "b16-binary": ({"metadata": b"Name: \xff\xfe\n"}, "its metadata"),
    "b17-entries": ({"entry_points": b"[loopctl]\n\xff = x:y\n"}, "entry_points.txt cannot be"),
    "b18-lines": ({"entry_points": "[loopctl]\nno equals sign\n"}, "entry_points.txt cannot be"),
    "b19-hostile": ({"source": HOSTILE}, "OSError: closed"),
    "b20-none": ({"source": "Plugin = None"}, "has no hook marked"),
}
SETTINGS = {"b12-settings": {"speed": 3}, "b13-object": {"speed": 3}}


@pytest.fixture
def broken(site: Site) -> Site:
    """Twenty broken distributions, and a good one before, among and behind them."""
    for name, (how, _) in BROKEN.items():
        site.install(name, **how)
    for name in ("a-good", "b10-good", "c-good"):
        site.install(name)
    return site


def test_each_broken_plugin_is_reported_with_its_distribution_and_disturbs_no_other(
    broken: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """CTX-26: whatever is wrong with it."""
    with caplog.at_level(logging.WARNING, "loopctl.plugins"):
        plugins = installed_plugins(SETTINGS)
    assert names(plugins) == ["a-good", "b10-good", "c-good"]
    assert {record.name for record in caplog.records} == {"loopctl.plugins"}
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(BROKEN)
    for name, (_, says) in BROKEN.items():
        folder = f"{name.replace('-', '_')}-1.0.dist-info"
        ours = [text for text in said if f"distribution {name} " in text or folder in text]
        assert len(ours) == 1, name
        assert says in ours[0]

    client = ScriptedClient("done")
    go(BareLoop(client, plugins=plugins))
    texts = [message.text for message in client.requests[0].messages]
    assert texts == ["a-good", "b10-good", "c-good", "go"]


def test_broken_plugins_that_are_blocked_are_never_imported(broken: Site) -> None:
    """CTX-26: metadata that cannot be read is still told of; it names nothing to block."""
    found = discover(block=BROKEN)
    assert broken.imported() == {"a_good", "b10_good", "c_good"}
    told = {each.distribution[:3] for each in found if each.state == "failed"}
    assert told == {"b15", "b16", "b17", "b18"}


def test_an_interrupt_while_a_plugin_is_imported_goes_through(site: Site) -> None:
    """CTX-26: only what the plugin itself got wrong is isolated."""
    site.install("slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        installed_plugins()


def test_the_same_entry_point_in_two_metadata_folders_is_one_plugin(site: Site) -> None:
    """CTX-26: an editable install and a wheel of it; the first on the path counts."""
    site.install("my-clock")
    later = Site(site.folder / "later")
    later.folder.mkdir()
    later.install("My_Clock", version="0.9", entry="old = nowhere:Plugin")
    (found,) = discover()
    assert (found.name, found.distribution, found.version) == ("my-clock", "my-clock", "1.0")
    assert found.hooks == ("contribute",)


def test_of_two_distributions_with_the_same_name_the_first_by_order_wins(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """CTX-26: the second is reported and never imported."""
    site.install("b-clock", entry="clock = b_clock:Plugin")
    site.install("a-clock", entry="clock = a_clock:Plugin")
    (plugin,) = installed_plugins()
    assert isinstance(plugin, InstalledPlugin)
    assert plugin.distribution == "a-clock"
    assert "of distribution b-clock 1.0 is left out: distribution a-clock has" in caplog.text
    assert site.imported() == {"a_clock"}


class Mine:
    closed = 0

    @hookimpl
    def contribute(self, ctx: Any) -> str:
        return self.text

    def __init__(self, text: str) -> None:
        self.text = text

    async def aclose(self) -> None:
        Mine.closed += 1


def as_installed(plugin: object) -> InstalledPlugin:
    return InstalledPlugin(plugin=plugin, name="mine", distribution="mine", version="1")


@pytest.mark.parametrize("given_first", [True, False])
def test_an_object_that_the_app_gives_beats_its_installed_twin(given_first: bool) -> None:
    """CTX-26: whichever came first; both are closed."""
    Mine.closed = 0
    plugins = [Mine("given"), as_installed(Mine("installed"))]
    client = ScriptedClient("done")
    agent = BareLoop(client, plugins=plugins if given_first else plugins[::-1])
    agent.add_plugin(Mine("another"))
    go(agent)
    assert [m.text for m in client.requests[0].messages] == ["given", "another", "go"]
    assert Mine.closed == 3


def test_installed_plugins_of_the_same_class_stand_side_by_side() -> None:
    """CTX-26: two entry points are two plugins; a module is another one's twin only as itself."""
    registry = PluginRegistry()
    registry.add_plugin(as_installed(Mine("one")))
    registry.add_plugin(as_installed(Mine("two")))
    assert [each.ask(None) for each in registry.contributors] == ["one", "two"]


def test_a_failing_contributor_names_its_distribution(site: Site) -> None:
    """CTX-9, CTX-25: the distribution reaches the session."""
    site.install("clock", GOOD.format(text="x").replace("return self.text", "raise OSError"))
    agent = BareLoop(ScriptedClient("done"), plugins=installed_plugins())
    run = agent.run_sync("go")
    assert any("clock" in warning for warning in run.warnings)
    (contributor,) = agent._session.plugins.contributors
    assert contributor.distribution == "clock"


def test_without_plugins_there_is_nothing(site: Site) -> None:
    """CTX-25: and in a library nothing loads by itself."""
    assert installed_plugins() == ()
    assert loopctl.installed_plugins is installed_plugins
    site.install("clock")
    client = ScriptedClient("done")
    go(BareLoop(client))
    assert [m.text for m in client.requests[0].messages] == ["go"]

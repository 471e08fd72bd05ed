"""Installed plugins: finding them, loading them one by one (CTX-5, CTX-25, CTX-26).

Nothing loads by itself: whoever wants them calls `installed_plugins`. Their order is the same on
every machine, whatever the file system lists first. What is broken is reported and left out.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any, Literal

from loopctl._failures import error_text
from loopctl.errors import ConfigError
from loopctl.plugins import InstalledPlugin, hooks_of

GROUP = "loopctl"
"""The group of entry points that plugins announce themselves in."""

logger = logging.getLogger("loopctl.plugins")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Found:
    """What became of one entry point."""

    name: str
    """Its name; empty when the metadata of `distribution` cannot be read."""
    distribution: str
    version: str
    state: Literal["loaded", "blocked", "failed"]
    """`blocked` by `block`, or by not being in `only`: it was not imported."""
    hooks: tuple[str, ...] = ()
    error: str | None = None
    """Why it failed."""
    plugin: object = None
    """The plugin itself, if it is loaded."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """An entry point that may be loaded, or metadata that cannot be used."""

    name: str
    distribution: str
    version: str
    entry: EntryPoint | None
    error: str | None = None

    @property
    def rank(self) -> tuple[str, str]:
        """Where it stands in the order of CTX-5."""
        return _normalised(self.distribution), self.name


def installed_plugins(
    settings: Mapping[str, Mapping[str, Any]] = {},
    *,
    only: Iterable[str] | None = None,
    block: Iterable[str] = (),
) -> tuple[object, ...]:
    """The installed plugins, for `BareLoop(plugins=[…])`; each knows its distribution.

    They come by distribution name, then entry-point name. An entry point that names a class makes
    an object at each call, with `settings[name]` as keyword arguments. `only` and `block` say
    which may be imported at all. All three go by the names of entry points; one in `settings` or
    `only` that is not installed is a `ConfigError`. A plugin that cannot be loaded is left out
    and reported as a warning of the logger `loopctl.plugins`. It reads files and imports modules:
    call it where a program starts, not in an event loop.
    """
    found = discover(settings, only=only, block=block)
    for each in found:
        if each.state == "failed":
            what = f"plugin {each.name!r}" if each.name else "whatever plugin"
            where = f"distribution {each.distribution} {each.version}".rstrip()
            logger.warning("%s of %s is left out: %s", what, where, each.error)
    return usable(found)


def usable(found: Iterable[Found]) -> tuple[InstalledPlugin, ...]:
    """Those that are loaded, as a session takes them."""
    return tuple(
        InstalledPlugin(
            plugin=each.plugin,
            name=each.name,
            distribution=each.distribution,
            version=each.version,
        )
        for each in found
        if each.state == "loaded"
    )


def discover(
    settings: Mapping[str, Mapping[str, Any]] = {},
    *,
    only: Iterable[str] | None = None,
    block: Iterable[str] = (),
) -> tuple[Found, ...]:
    """What became of each entry point, in order; the arguments are those of `installed_plugins`.

    Raises `ConfigError` for settings and names that cannot be meant, before anything is imported.
    """
    wanted = None if only is None else _names("only", only)
    blocked = _names("block", block)
    offers = sorted(_offers(), key=lambda offer: offer.rank)
    known = {offer.name for offer in offers if offer.name}
    _check_known("only", wanted or (), known)
    _check_known("settings", settings, known)
    for name, given in settings.items():
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"settings[{name!r}]={given!r}: give a mapping of keyword arguments")
    found: list[Found] = []
    owners: dict[str, str] = {}
    for offer in offers:
        if offer.entry is None:
            found.append(_outcome(offer, "failed", error=offer.error))
        elif offer.name in blocked or (wanted is not None and offer.name not in wanted):
            found.append(_outcome(offer, "blocked"))
        elif offer.name in owners:
            error = f"distribution {owners[offer.name]} has a plugin of this name and comes first"
            found.append(_outcome(offer, "failed", error=error))
        else:
            owners[offer.name] = offer.distribution
            found.append(_load(offer, offer.entry, settings.get(offer.name)))
    return tuple(found)


def _load(offer: _Offer, entry: EntryPoint, settings: Mapping[str, Any] | None) -> Found:
    try:
        plugin = _made(entry, settings)
        hooks = hooks_of(plugin)
    except ConfigError as error:
        return _outcome(offer, "failed", error=str(error))
    except (Exception, SystemExit) as error:
        return _outcome(offer, "failed", error=error_text(error))
    return _outcome(offer, "loaded", hooks=hooks, plugin=plugin)


def _made(entry: EntryPoint, settings: Mapping[str, Any] | None) -> object:
    if not entry.pattern.match(entry.value):
        raise ConfigError(f"its entry point {entry.value!r} is not of the form module:object")
    named: Any = entry.load()
    if isinstance(named, type):
        return named(**settings or {})
    if settings:
        raise ConfigError(f"{entry.value} is an object, not a class: it takes no settings")
    return named


def _outcome(
    offer: _Offer,
    state: Literal["loaded", "blocked", "failed"],
    *,
    hooks: tuple[str, ...] = (),
    error: str | None = None,
    plugin: object = None,
) -> Found:
    return Found(
        name=offer.name,
        distribution=offer.distribution,
        version=offer.version,
        state=state,
        hooks=hooks,
        error=error,
        plugin=plugin,
    )


def _offers() -> Iterator[_Offer]:
    """All entry points of the group; of two metadata folders of a distribution, the first's.

    The first on the path is also the one whose modules are imported.
    """
    seen: set[str] = set()
    for distribution in distributions():
        try:
            entries = tuple(distribution.entry_points.select(group=GROUP))
        except Exception as error:  # whatever stands in a file that anybody may have written
            what = f"its entry_points.txt cannot be read: {error_text(error)}"
            yield _Offer("", _folder(distribution), "", None, what)
            continue
        if not entries:
            continue
        try:
            metadata = distribution.metadata
            name = metadata["Name"] if "Name" in metadata else None  # noqa: SIM401  # no get()
            version = metadata["Version"] if "Version" in metadata else ""  # noqa: SIM401
        except Exception as error:
            name, version, what = None, "", f"its metadata cannot be read: {error_text(error)}"
        else:
            what = "its metadata has no name"
        if not name:
            folder = _folder(distribution)
            yield from (_Offer(entry.name, folder, "", None, what) for entry in entries)
            continue
        if _normalised(name) in seen:
            continue
        seen.add(_normalised(name))
        for entry in {entry.name: entry for entry in reversed(entries)}.values():
            yield _Offer(entry.name, name, version, entry)


def _folder(distribution: Distribution) -> str:
    """What to call a distribution without a readable name: its metadata folder."""
    path = getattr(distribution, "_path", None)
    return str(getattr(path, "name", None) or distribution.locate_file(""))


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _names(option: str, given: Iterable[str]) -> frozenset[str]:
    if isinstance(given, str):
        raise ConfigError(f"{option}={given!r}: give names, such as [{given!r}]")
    return frozenset(given)


def _check_known(option: str, names: Iterable[str], known: set[str]) -> None:
    for name in sorted(names):
        if name in known:
            continue
        near = difflib.get_close_matches(name, sorted(known), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        there = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"{option}: no plugin {name!r} is installed{meant} (there: {there})")

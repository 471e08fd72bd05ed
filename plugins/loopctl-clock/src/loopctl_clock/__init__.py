"""The date, the time and the zone, told to the model before every turn."""

from __future__ import annotations

from typing import Any, Literal
from zoneinfo import ZoneInfo

from loopctl import Contribution, ContributorContext, Message, hookimpl
from loopctl.errors import ConfigError


class Clock:
    """Contributes what a clock on the wall says, by the session's own clock.

    `timezone` is a name of the IANA database, such as `"Europe/Paris"`; `format` is written as for
    `strftime`; `placement` is where the message rides: it changes with every turn, so at the
    `"tail"` a provider's prompt cache keeps what stands in front of it.

    Raises `ConfigError` for a zone, a format or a placement that cannot be used.
    """

    def __init__(
        self,
        timezone: str = "UTC",
        format: str = "%A, %Y-%m-%d %H:%M",
        placement: Literal["head", "tail"] = "tail",
    ) -> None:
        try:
            self._zone = ZoneInfo(timezone)
        except (OSError, TypeError, ValueError, LookupError) as error:
            raise ConfigError(
                f"timezone={timezone!r}: no such zone; give a name such as 'Europe/Paris'"
            ) from error
        if not format.strip():
            raise ConfigError("format is empty; give one for strftime, such as '%Y-%m-%d %H:%M'")
        if placement not in ("head", "tail"):
            raise ConfigError(f"placement={placement!r}: must be 'head' or 'tail'")
        self._name = timezone
        self._format = format
        self._placement: Literal["head", "tail"] = placement

    @hookimpl
    def contribute(self, ctx: ContributorContext[Any]) -> Contribution:
        """The time of `ctx.now` in the zone."""
        here = ctx.now.astimezone(self._zone)
        text = f"The current date and time: {here.strftime(self._format)} ({self._name})"
        return Contribution(Message.system(text), self._placement)

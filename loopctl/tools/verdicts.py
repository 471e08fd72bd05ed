"""How hooks and the approver are asked, and what their answers come to (TOL-13, TOL-14).

`Deny` beats `Ask` beats `Allow`, and the first `Deny` ends the asking. Each `Modify` is validated
and feeds the next hook; then the hooks in front of the last one that modified are asked once more
about the result, and whoever would change it again has denied the call. An `Ask` stays, whatever
its hook says the second time. What fails, in any way, is a `Deny`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from loopctl._deadline import Deadline
from loopctl._failures import error_text, goes_through
from loopctl.messages import ToolCallPart
from loopctl.tools.decisions import (
    Allow,
    ApprovalRequest,
    Approver,
    Ask,
    DecisionHook,
    Deny,
    Modify,
    ToolCallContext,
)

Ctx: TypeAlias = ToolCallContext[Any]
Validate: TypeAlias = Callable[[str], object]
"""Raises when the JSON text of arguments does not fit the tool."""

_LOG = logging.getLogger("loopctl.tools")


class Council:
    """The hooks that decide about one call, and the rules they are asked by.

    `timeout` in seconds is for each async hook; `baseline` is `native_cancellations()` from
    before the call.
    """

    def __init__(
        self,
        hooks: Sequence[DecisionHook],
        *,
        validate: Validate,
        timeout: float | None,
        baseline: int,
    ) -> None:
        self._hooks = hooks
        self._validate = validate
        self._timeout = timeout
        self._baseline = baseline
        self._prompts: dict[int, str] = {}

    async def decide(self, ctx: Ctx) -> tuple[Allow | Ask | Deny, Ctx]:
        """What the hooks say to the call, and the call with the arguments that they settled on."""
        modified = 0
        for index, hook in enumerate(self._hooks):
            answer = await self._ask(index, hook, ctx)
            if isinstance(answer, Deny):
                return answer, ctx
            if isinstance(answer, Modify):
                changed = self._changed(ctx, answer, hook.name)
                if isinstance(changed, Deny):
                    return changed, ctx
                if changed is not ctx:
                    ctx, modified = changed, index
        objection = await self._review(ctx, modified)
        if objection is not None:
            return objection, ctx
        if self._prompts:
            return Ask("\n".join(dict.fromkeys(filter(None, self._prompts.values())))), ctx
        return Allow(), ctx

    async def approve(
        self, ctx: Ctx, prompt: str, approver: Approver | None, timeout: float | None
    ) -> tuple[Allow | Deny, Ctx]:
        """What the approver says; arguments that it changed are put before the hooks again."""
        if approver is None:
            return Deny("it needs approval, and nobody is there to give it"), ctx
        request = ApprovalRequest(call=ctx.call, prompt=prompt, ctx=ctx)
        answer = await self._answer(lambda: approver(request), "the approver", timeout)
        if isinstance(answer, Deny):
            return answer, ctx
        if isinstance(answer, Modify):
            changed = self._changed(ctx, answer, "the approver")
            if isinstance(changed, Deny):
                return changed, ctx
            objection = await self._review(changed, len(self._hooks))
            return (Allow() if objection is None else objection), changed
        if isinstance(answer, Allow):
            return answer, ctx
        return _no_decision("the approver", answer), ctx

    async def _review(self, ctx: Ctx, count: int) -> Deny | None:
        """Ask the first `count` hooks once more; only their objections count."""
        for index, hook in enumerate(self._hooks[:count]):
            answer = await self._ask(index, hook, ctx)
            if isinstance(answer, Modify):
                changed = self._changed(ctx, answer, hook.name)
                if changed is ctx:
                    continue
                answer = Deny(f"{hook.name} would change the arguments again")
            if isinstance(answer, Deny):
                return answer
        return None

    async def _ask(self, index: int, hook: DecisionHook, ctx: Ctx) -> Modify | Deny | None:
        answer = await self._answer(lambda: hook.ask(ctx), hook.name, self._timeout)
        if isinstance(answer, Ask):
            self._prompts[index] = answer.prompt
            return None
        if answer is None or isinstance(answer, Allow):
            return None
        return answer if isinstance(answer, (Modify, Deny)) else _no_decision(hook.name, answer)

    def _changed(self, ctx: Ctx, answer: Modify, who: str) -> Ctx | Deny:
        """The call with other arguments, itself when they are the same, or why it cannot be."""
        try:
            given = cast("object", answer.arguments)
            if not isinstance(given, Mapping):
                return Deny(f"{who} gave arguments that are no mapping")
            call = ToolCallPart(ctx.call.id, ctx.call.name, cast("Mapping[str, Any]", given))
            if _canonical(call) == _canonical(ctx.call):
                return ctx
            self._validate(call.arguments)
        except Exception as error:
            return Deny(f"{who} gave arguments that do not fit: {error_text(error)}")
        return dataclasses.replace(ctx, call=call)

    async def _answer(self, ask: Callable[[], object], who: str, timeout: float | None) -> object:
        """The answer of a function, sync or async; every failure is a `Deny`."""
        try:
            answer = ask()
            if not inspect.isawaitable(answer):
                return answer
            with Deadline(timeout) as deadline:
                try:
                    answer = await answer
                except BaseException as error:
                    return self._failed(error, who)
        except BaseException as error:
            return self._failed(error, who)
        if deadline.scope.cancel_called:
            return Deny(f"{who} did not answer within {timeout:g} s")
        return answer

    def _failed(self, error: BaseException, who: str) -> Deny:
        passing = goes_through(error, self._baseline)
        if passing is error:
            raise error
        if passing is not None:
            raise passing from None
        _LOG.error("%s failed, which denies the call", who, exc_info=error)
        return Deny(f"{who} failed: {error_text(error)}")


def _no_decision(who: str, answer: object) -> Deny:
    return Deny(f"{who} answered {type(answer).__name__} instead of a decision")


def _canonical(call: ToolCallPart) -> str:
    return json.dumps(call.parse(), sort_keys=True)

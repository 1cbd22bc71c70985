"""Compiles dispatches in a page: texts cross once, pipelines are made once for equal content."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from webtune.errors import ArgumentError, LaunchError, UsageError
from webtune.gpu.base import Dispatch, Handle, Program, padded_bytes, program_label
from webtune.gpu.browser.link import Link


class BrowserProgram:
    """A compiled sequence of dispatches; it lives in JavaScript under a number."""

    __slots__ = ("_engine", "label", "number", "released")

    def __init__(self, engine: Any, number: int, label: str) -> None:
        self._engine = engine
        self.number = number
        self.label = label
        self.released = False

    @property
    def failure(self) -> str | None:
        """Why the device refused it, where that became known after `compile_now`."""
        return str(self._engine.failure(self.number)) or None

    def release(self) -> None:
        """Let go of the bind groups and buffers."""
        if not self.released:
            self.released = True
            self._engine.release(self.number)


class Programs:
    """Makes the programs of one device."""

    def __init__(self, link: Link, most_workgroups: int) -> None:
        self._link = link
        self._most_workgroups = most_workgroups
        self._texts: dict[str, int] = {}

    async def build(self, dispatches: Sequence[Dispatch]) -> BrowserProgram:
        """A program whose pipelines are made in parallel. `LaunchError` with the compiler's
        message and line."""
        specs, buffers = self._specs(dispatches)
        number = self._link.number(await self._link.engine.compile(specs, *buffers))
        return BrowserProgram(self._link.engine, int(number), program_label(dispatches))

    def build_now(self, dispatches: Sequence[Dispatch]) -> BrowserProgram:
        """The same at once; what the device refuses later shows in the program's `failure`."""
        specs, buffers = self._specs(dispatches)
        number = self._link.call(self._link.engine.compileNow, specs, *buffers)
        return BrowserProgram(self._link.engine, int(number), program_label(dispatches))

    def _specs(self, dispatches: Sequence[Dispatch]) -> tuple[str, tuple[Handle, ...]]:
        self._link.check()
        specs = json.dumps([self._spec(dispatch) for dispatch in dispatches])
        bindings = (binding for dispatch in dispatches for binding in dispatch.bindings)
        return specs, tuple(binding.handle for binding in bindings)

    def _spec(self, dispatch: Dispatch) -> dict[str, Any]:
        if max(dispatch.workgroups) > self._most_workgroups:
            raise LaunchError(
                f"workgroups {dispatch.workgroups} exceed the device's "
                f"maxComputeWorkgroupsPerDimension of {self._most_workgroups}"
            )
        number = self._texts.get(dispatch.source)
        if number is None:
            number = self._texts[dispatch.source] = int(self._link.engine.text(dispatch.source))
        return {
            "text": number,
            "entry": dispatch.entry,
            "constants": [[name, _constant(value)] for name, value in dispatch.constants],
            "bindings": [[binding.index, binding.kind] for binding in dispatch.bindings],
            "sizes": [padded_bytes(binding.nbytes) for binding in dispatch.bindings],
            "workgroups": list(dispatch.workgroups),
        }


def program_number(program: Program) -> int:
    """The number under which JavaScript knows a program that may still run."""
    if not isinstance(program, BrowserProgram):
        raise ArgumentError("this program was not compiled by a browser device")
    if program.released:
        raise UsageError(f"the program {program.label!r} was released; compile it again")
    return program.number


def _constant(value: float | int | bool) -> float | int:
    number = int(value) if isinstance(value, bool) else value
    if isinstance(number, float) and not math.isfinite(number):
        raise LaunchError(f"an override constant cannot be {number}")
    return number

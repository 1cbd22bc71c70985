"""The link to a page's device: errors are webtune's, waits end, and a loss is noticed.

A result counts only once its mapping succeeded and the device was not lost meanwhile: after a loss
`onSubmittedWorkDone` resolves as if the work had been done.
"""

from __future__ import annotations

from typing import Any, NoReturn

from webtune.errors import DeviceLost, DeviceTimeout, LaunchError
from webtune.gpu.browser.javascript import evaluate, pyodide_module

_CLOSED = "closed: its tuner destroyed it or let it go"


class Link:
    """A JS `GPUDevice` behind the engine, with its loss, its time-out and its translated errors."""

    def __init__(self, js_device: Any, query_count: int, timeout_s: float) -> None:
        self._js_exception: type[Exception] = pyodide_module("pyodide.ffi").JsException
        make = evaluate("webtune.gpu.browser", "engine.js")
        self.engine = make(js_device, query_count, round(timeout_s * 1000))
        self._closed = False

    @property
    def lost(self) -> str | None:
        """Why the device is gone, or None."""
        return _CLOSED if self._closed else str(self.engine.lost()) or None

    def check(self) -> None:
        """Raise `DeviceLost` when the device is gone."""
        reason = self.lost
        if reason is not None:
            raise DeviceLost(f"the WebGPU device is lost ({reason}); open a new tuner")

    def call(self, function: Any, *args: Any) -> Any:
        """The answer of a JavaScript function. What it throws at once, or tells of, is raised."""
        try:
            answer = function(*args)
        except self._js_exception as error:
            raise LaunchError(str(error)) from error
        if isinstance(answer, str) and answer:
            self._fail(answer)
        return answer

    def number(self, answer: Any) -> float:
        """The number that a promise of JavaScript's gave, or the failure that it told of raised."""
        if isinstance(answer, str):
            self._fail(answer)
        return float(answer)

    async def fetch(self, ticket: int, nbytes: int) -> memoryview:
        """The staged bytes of a ticket; its staging buffer is destroyed whatever happens here."""
        try:
            self.number(await self.engine.ready(ticket))
            out = bytearray(nbytes)
            self.engine.mapped(ticket).assign_to(out)
            return memoryview(out)
        finally:
            self.engine.end(ticket)

    async def drain(self) -> None:
        """Wait for all submitted work, by mapping: only that tells of a loss."""
        self.check()
        await self.fetch(self.engine.startDrain(), 4)
        self.check()

    def close(self, *, destroy: bool) -> None:
        """Free what the engine made, and with `destroy` the device."""
        if not self._closed:
            self.engine.lose(_CLOSED)
            self.engine.close(destroy)
            self._closed = True

    def _fail(self, text: str) -> NoReturn:
        kind, _, message = text.partition(":")
        if kind == "timeout":
            told = f"work did not come back in {float(message) / 1000:g} s"
            self.engine.lose(f"abandoned: {told}")
            raise DeviceTimeout(f"submitted {told}; the device is given up")
        if kind == "lost" or self.lost is not None:
            raise DeviceLost(f"the WebGPU device is lost ({message}); open a new tuner")
        raise LaunchError(message)

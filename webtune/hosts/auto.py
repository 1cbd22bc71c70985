"""The one place that asks where webtune runs, and the front doors that follow from it."""

from __future__ import annotations

import sys
from typing import Any

from webtune.tuner import Tuner


def platform() -> str:
    """ "browser" under Pyodide, else "native"."""
    return "browser" if sys.platform == "emscripten" else "native"


def open_tuner(
    device: Any = None, *, store: Any = None, bundle: Any = None, **settings: Any
) -> Tuner:
    """Open a tuner on the best adapter, or on your own `device` (a `wgpu.GPUDevice`).

    - `store`: None for the user's cache folder, "memory", "none", a folder, or a store object.
    - `bundle`: picks that come with your application (a path, its JSON text, or a `Bundle`). They
      are read where the store has none, and never written.
    - `settings`: knobs of `webtune.config.Config` by name, such as `strategy="fixed"`, or
      `adapter=`, part of an adapter's name.
    Raises `HostUnavailable` where no adapter can compute, and in a browser, where opening must be
    awaited: use `await open_tuner_async()` there.
    """
    if platform() == "browser":
        from webtune.errors import HostUnavailable

        raise HostUnavailable("a page cannot wait here; use `await webtune.open_tuner_async()`")
    from webtune.hosts.native import open_native

    return open_native(device, store=store, bundle=bundle, **settings)


async def open_tuner_async(
    device: Any = None, *, store: Any = None, bundle: Any = None, **settings: Any
) -> Tuner:
    """The same, awaiting. In a browser on `navigator.gpu`, or on your own JavaScript `GPUDevice`,
    with picks in the origin private file system; natively in a thread, so that the event loop
    goes on while the driver loads."""
    if platform() == "browser":
        from webtune.hosts.browser import open_browser

        return await open_browser(device, store=store, bundle=bundle, **settings)
    from webtune.hosts.native import open_native_async

    return await open_native_async(device, store=store, bundle=bundle, **settings)

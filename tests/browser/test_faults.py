"""What goes wrong in a page is told in a sentence, and ends."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webtune.errors import UsageError
from webtune.testing.browser import PythonPage

INSIDE = (Path(__file__).parent / "inside.py").read_text()

# ruff: noqa: F821 (names of inside.py)


def run(page: PythonPage, function: Callable[..., Any], **arguments: Any) -> Any:
    """Run a function inside, after the helpers of inside.py."""
    source = INSIDE + "\n\n" + textwrap.dedent(inspect.getsource(function))
    return page.run_source(source, function.__name__, timeout_s=90, **arguments)


async def open_without(script: str, undo: str, settings: dict[str, Any]) -> Any:
    from pyodide.code import run_js

    run_js(script)
    try:
        tuner = await wt.open_tuner_async(store="memory", **settings)
        tuner.close()
        return ["", ""]
    except wt.WebtuneError as error:
        return [type(error).__name__, str(error)]
    finally:
        run_js(undo)


NO_GPU = "Object.defineProperty(navigator, 'gpu', { value: undefined, configurable: true })"
NO_ADAPTER = "navigator.gpu.requestAdapter = async () => null"


def test_without_webgpu_the_error_says_what_is_needed(place: PythonPage) -> None:
    kind, message = run(
        place, open_without, script=NO_GPU, undo="delete navigator.gpu", settings={}
    )
    assert kind == "HostUnavailable"
    assert "navigator.gpu is missing" in message
    assert "https" in message


def test_without_an_adapter_the_error_says_where_to_look(place: PythonPage) -> None:
    kind, message = run(
        place,
        open_without,
        script=NO_ADAPTER,
        undo="delete navigator.gpu.requestAdapter",
        settings={},
    )
    assert kind == "HostUnavailable"
    assert "no adapter" in message


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"features": ["shader-f16"]}, "shader-f16"),
        ({"limits": {"maxComputeWorkgroupStorageSize": 1 << 30}}, "maxComputeWorkgroupStorageSize"),
    ],
)
def test_a_feature_or_limit_that_is_not_granted_is_named(
    main: PythonPage, settings: dict[str, Any], named: str
) -> None:
    kind, message = run(main, open_without, script="0", undo="0", settings=settings)
    assert kind == "FeatureUnavailable"
    assert named in message


def test_opening_without_awaiting_is_refused_with_the_right_call(main: PythonPage) -> None:
    def body() -> Any:
        import webtune

        try:
            webtune.open_tuner()
        except webtune.HostUnavailable as error:
            return str(error)

    assert "open_tuner_async" in main.run(body)


async def beside_bad_ones() -> Any:
    async with opened() as tuner:
        kernel = wt.Kernel(
            "mixed",
            source=lambda p: {
                "good": SPIN.replace("override TURNS: u32;", "const TURNS = 50u;"),
                "slow": SPIN.replace("override TURNS: u32;", "const TURNS = 6000u;"),
                "bad": SPIN.replace("override TURNS: u32;", "const TURNS = 50u;").replace(
                    "var state", "\n  let broken = nowhere;\n  var state"
                ),
                "late": SPIN.replace(
                    "override TURNS: u32;",
                    "override N = 40000u; const TURNS = 5u; var<workgroup> big: array<u32, N>;",
                ).replace("var state =", "big[id.x % 32u] = id.x; var state = big[0] +"),
            }[p.KIND],
            params=wt.grid(KIND=["bad", "late", "slow", "good"]),
            constants=lambda p, *args: {},
            workgroups=lambda p, x, y: 32,
        )
        x, y = data(tuner)
        report = await tuner.tune_async(kernel, x, y)
        told = {one.params["KIND"]: [one.status, one.reason] for one in report.results}
        return [report.winner.params["KIND"], told]


def test_wgsl_that_fails_to_compile_or_late_leaves_the_others_their_chance(
    place: PythonPage,
) -> None:
    winner, told = run(place, beside_bad_ones)
    assert winner == "good"
    assert told["bad"][0] == "launch"
    assert "line " in told["bad"][1]
    assert "nowhere" in told["bad"][1]
    assert told["late"][0] == "launch"
    assert "workgroup" in told["late"][1].lower()
    assert told["slow"][0] in ("slower", "eliminated")


async def destroy(when: str) -> Any:
    from js import navigator

    adapter = await navigator.gpu.requestAdapter()
    device = await adapter.requestDevice()
    outcome = {}
    async with opened(device=device) as tuner:
        kernel = spin((60_000, 90_000, 60))
        x, y = data(tuner)
        if when == "before":
            device.destroy()
            await asyncio.sleep(0.05)
        task = asyncio.ensure_future(tuner.tune_async(kernel, x, y))
        if when == "during":
            await asyncio.sleep(0.25)
            outcome["under way"] = type(tuner.lookup(kernel, x, y)).__name__
            device.destroy()
        if when == "after":
            await task
            device.destroy()
            await asyncio.sleep(0.05)
        else:
            (error,) = await asyncio.gather(task, return_exceptions=True)
            outcome["tune"] = type(error).__name__
        for name, call in {
            "run": lambda: tuner.run(kernel, x, y),
            "upload": lambda: tuner.upload(b"1234"),
            "empty": lambda: tuner.empty(4),
        }.items():
            try:
                call()
                outcome[name] = "nothing raised"
            except wt.WebtuneError as error:
                outcome[name] = type(error).__name__
        try:
            await tuner.download_async(y)
            outcome["download"] = "nothing raised"
        except wt.WebtuneError as error:
            outcome["download"] = type(error).__name__
        outcome["lost"] = bool(tuner.device.lost)
        outcome["jobs"] = len(tuner._scheduler._tasks)
        suspects = tuner.store.suspects(tuner.device.identity.digest)
        outcome["suspects"] = len(suspects)
    async with opened() as again:
        x, y = data(again)
        again.run(spin((50,)), x, y)
        outcome["a new tuner"] = await doubled(again, y)
    return outcome


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_after_the_device_is_destroyed_everything_says_so(place: PythonPage, when: str) -> None:
    outcome = run(place, destroy, when=when)
    if when != "after":
        assert outcome["tune"] == "DeviceLost"
    if when == "during":
        assert outcome["under way"] == "Pending"
    assert {outcome[name] for name in ("run", "upload", "empty", "download")} == {"DeviceLost"}
    assert outcome["lost"]
    assert outcome["jobs"] == 0
    assert outcome["suspects"] == 0
    assert outcome["a new tuner"]


async def adopt_bad_ones() -> Any:
    from js import Object, navigator

    adapter = await navigator.gpu.requestAdapter()
    gone = await adapter.requestDevice()
    gone.destroy()
    told = []
    for device in (gone, Object.new(), 5):
        try:
            (await wt.open_tuner_async(device=device, store="memory")).close()
            told.append("nothing raised")
        except wt.WebtuneError as error:
            told.append(type(error).__name__)
    return told


def test_what_is_no_living_device_is_not_adopted(place: PythonPage) -> None:
    assert run(place, adopt_bad_ones) == ["DeviceLost", "HostUnavailable", "HostUnavailable"]


async def never_back() -> Any:
    from webtune.gpu.base import Dispatch, Shot
    from webtune.hosts.browser import open_device

    device = await open_device(timeout_s=0.3)
    source = "@compute @workgroup_size(1) fn main() { }"
    program = await device.compile([Dispatch(source, "main", (), (), (1, 1, 1))])
    from pyodide.code import run_js

    run_js("queue => { queue.onSubmittedWorkDone = () => new Promise(() => 0); }")(
        device.js_device.queue
    )
    told = []
    for _ in range(2):
        try:
            await device.time([Shot(program)])
        except wt.WebtuneError as error:
            told.append([type(error).__name__, str(error)])
    held = device.counts()
    device.close()
    return [told, held["tickets"], held["pending"]]


def test_work_that_does_not_come_back_ends_in_time_and_the_device_is_given_up(
    place: PythonPage,
) -> None:
    told, tickets, pending = run(place, never_back)
    assert [kind for kind, _ in told] == ["DeviceTimeout", "DeviceLost"]
    assert "0.3 s" in told[0][1]
    assert tickets == 0
    assert pending == 0


async def cancelled_read() -> Any:
    async with opened() as tuner:
        x, _ = data(tuner, 1 << 16)
        for _ in range(20):
            task = asyncio.ensure_future(tuner.download_async(x))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        tickets = tuner.device.counts()["tickets"]
        values = await tuner.download_async(x)
        return [tickets, float(values[100])]


def test_cancelled_reads_leave_no_staging_buffer_behind(main: PythonPage) -> None:
    assert run(main, cancelled_read) == [0, 100.0]


async def own_objects_that_do_not_serve() -> Any:
    from js import navigator
    from pyodide.code import run_js

    device = await (await navigator.gpu.requestAdapter()).requestDevice()
    closed = run_js("d => d.createBuffer({ size: 4096, usage: 0x80 })")(device)
    encoder = device.createCommandEncoder()
    told = []

    async def expect(awaitable):
        try:
            await awaitable
        except wt.WebtuneError as error:
            told.append([type(error).__name__, str(error)])

    async def record(compute_pass, kernel, x, y):
        tuner.record(compute_pass, kernel, x, y)

    async with opened(device=device) as tuner:
        x, y = data(tuner)
        own = tuner.wrap(closed, "f32")
        await expect(tuner.download_async(own))
        await expect(tuner.tune_async(spin(), x, own))
        await expect(tuner.tune_async(spin(check=wt.AllClose(lambda x, y: x)), own, y))
        kernel = spin()
        await tuner.tune_async(kernel, x, y)
        for compute_pass in (None, encoder):
            await expect(record(compute_pass, kernel, x, y))
        still = type(tuner.run(kernel, x, y)).__name__
    return [told, still]


def test_own_buffers_and_passes_that_do_not_serve_are_told_by_name(main: PythonPage) -> None:
    told, still = run(main, own_objects_that_do_not_serve)
    assert [kind for kind, _ in told] == ["ArgumentError"] * 5
    for (_, text), says in zip(
        told,
        ["COPY_SRC", "y could not be copied", "x could not be copied", "NoneType", "JsProxy"],
        strict=True,
    ):
        assert says in text
    assert still == "Hit"


def test_what_cannot_be_sent_into_a_page_is_told_before(main: PythonPage) -> None:
    made: dict[str, Any] = {}
    exec("def nowhere(): pass", made)
    for function, says in [(lambda: 1, "with def"), (len, "with def"), (made["nowhere"], "source")]:
        with pytest.raises(UsageError, match=says):
            main.run(function)


async def bad_calls() -> Any:
    from webtune.store.opfs import OpfsStore

    told = {}

    async def expect(name, call):
        try:
            await call() if asyncio.iscoroutinefunction(call) else call()
        except wt.WebtuneError as error:
            told[name] = [type(error).__name__, str(error)]

    async with opened() as tuner:
        x, y = data(tuner)
        await expect("download", lambda: tuner.download(y))
        await expect("tune", lambda: tuner.tune(spin(), x, y))
        await expect("count", lambda: tuner.run(spin(), x))
        await expect("dtype", lambda: tuner.run(spin(), tuner.empty(8, "u32"), y))
        await expect("object", lambda: tuner.upload(object()))
        await expect("large", lambda: tuner.empty(1 << 40))
    await expect("namespace", lambda: OpfsStore("../up"))

    async def unknown():
        await wt.open_tuner_async(store="memory", smaples=3)

    await expect("setting", unknown)
    return told


def test_a_bad_call_is_refused_at_the_call(main: PythonPage) -> None:
    told = run(main, bad_calls)
    assert set(told) == {
        "download", "tune", "count", "dtype", "object", "large", "namespace", "setting",
    }  # fmt: skip
    assert "download_async" in told["download"][1]
    assert "tune_async" in told["tune"][1]
    assert told["setting"][0] == "ConfigError"

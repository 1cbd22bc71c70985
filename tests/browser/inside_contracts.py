"""Runs inside a page: the contracts of device and store, the same bodies as elsewhere.

A few dozen lines stand in for pytest there: fixtures, parameters and `raises` are what the bodies
use. Waiting is done by switching stacks (`run_sync`), since the bodies are written to block.
"""

import asyncio
import contextlib
import inspect
import itertools
import re
import sys
import traceback
import types


class _Raises:
    def __init__(self, kind, match):
        self.kind, self.match = kind, match

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            raise AssertionError(f"{self.kind.__name__} was not raised")
        if not issubclass(kind, self.kind):
            return False
        if self.match and not re.search(self.match, str(error)):
            raise AssertionError(f"{self.match!r} is not in {error}") from error
        return True


def _parametrize(names, cases):
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def mark(function):
        rows = [
            dict(zip(names, case if len(names) > 1 else (case,), strict=True)) for case in cases
        ]
        function.rows = rows
        return function

    return mark


def _fixture(function=None, *, params=None):
    def mark(given):
        given.is_fixture, given.params = True, params
        return given

    return mark(function) if function is not None else mark


def stand_in():
    """A module named pytest with what the contracts use."""
    made = types.ModuleType("pytest")
    made.fixture = _fixture
    made.raises = lambda kind, match=None: _Raises(kind, match)
    made.mark = types.SimpleNamespace(parametrize=_parametrize)
    made.FixtureRequest = object
    return made


def load(source, absent):
    """The contract's module, with stand-ins for what no page has."""
    from pyodide.ffi import run_sync

    import webtune.strategies.drive

    webtune.strategies.drive.complete = run_sync
    sys.modules["pytest"] = stand_in()
    for name, members in absent.items():
        stub = types.ModuleType(name)
        for member in members:
            setattr(stub, member, type(member, (), {"lose": None}))
        sys.modules[name] = stub
    module = types.ModuleType("contract")
    module.__dict__["__name__"] = "contract"
    sys.modules["contract"] = module
    exec(compile(source, "contract.py", "exec"), module.__dict__)
    return module


def needed(function, module, found):
    """All fixtures that a body asks for, in the order of making."""
    for name in inspect.signature(function).parameters:
        maker = getattr(module, name, None)
        if maker is not None and getattr(maker, "is_fixture", False) and name not in found:
            needed(maker, module, found)
            found.append(name)
    return found


def run(function, module, row, params):
    """One body with one set of parameters; its fixtures end whatever happens."""
    values = dict(row)
    with contextlib.ExitStack() as stack:
        for name in needed(function, module, []):
            maker = getattr(module, name)
            asked = inspect.signature(maker).parameters
            request = types.SimpleNamespace(param=params.get(name))
            given = {one: request if one == "request" else values[one] for one in asked}
            made = maker(**given)
            if inspect.isgenerator(made):
                values[name] = next(made)
                stack.callback(lambda made=made: next(made, None))
            else:
                values[name] = made
        function(**{one: values[one] for one in inspect.signature(function).parameters})


def run_all(module, leave_out):
    """Every body with every parameter: names of those that passed, and reasons of the others."""
    passed, failed = [], {}
    for name, function in list(vars(module).items()):
        if not name.startswith("test_") or name in leave_out:
            continue
        makers = needed(function, module, [])
        choices = [
            [(maker, one) for one in getattr(module, maker).params]
            for maker in makers
            if getattr(module, maker).params
        ]
        for row in getattr(function, "rows", [{}]):
            for chosen in itertools.product(*choices):
                label = f"{name}{[one for _, one in chosen]}{list(row.values())}"
                try:
                    run(function, module, row, dict(chosen))
                except BaseException:
                    failed[label] = traceback.format_exc()
                else:
                    passed.append(label)
    return {"passed": passed, "failed": failed}


def device_contract(source):
    """The device's contract on this page's device, with timestamps and by the wall clock."""
    from pyodide.ffi import run_sync

    from webtune.hosts.browser import open_device

    module = load(
        source,
        {
            "webtune.gpu.native.device": ["NativeDevice"],
            "webtune.gpu.native.adapters": ["open_device"],
            "webtune.testing": ["ScriptedDevice"],
        },
    )

    def lose(device):
        device.js_device.destroy()
        run_sync(asyncio.sleep(0.01))

    rigs = {
        "browser": module.Rig(lambda: run_sync(open_device()), lose, lambda repeat: repeat),
        "browser-wall": module.Rig(
            lambda: run_sync(open_device(timestamps=False)), lose, lambda repeat: 3 * repeat
        ),
    }
    for table in (module.EVERY, module.COMPUTING):
        table.clear()
        table.update(rigs)
    return run_all(module, ())


def store_contract(source):
    """The store's contract on OPFS. Pages have no threads and no SQLite."""
    from pyodide.ffi import run_sync

    from webtune.store.opfs import OpfsStore

    module = load(source, {"webtune.store.sqlite": ["SqliteStore"]})
    numbers = itertools.count()

    @_fixture(params=["opfs"])
    def store(request):
        made = OpfsStore(f"contract-{next(numbers)}")
        run_sync(made.open())
        yield made
        run_sync(made.flush())
        made.close()

    module.store = store
    reopening = ("test_threads_may_use_a_store_together",
                 "test_a_store_closed_twice_in_the_same_candidate_bars_it")  # fmt: skip
    return run_all(module, reopening)

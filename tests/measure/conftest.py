"""A bench on a scripted GPU, the store's journal alone, and outputs for checks to judge."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from webtune.config import Config
from webtune.errors import Failure, FailureKind
from webtune.gpu.base import Binding, Copy, Dispatch
from webtune.kernel.arguments import Buffer, HostArray
from webtune.measure.bench import Bench
from webtune.measure.bench_candidate import BenchCandidate, Conditions, WrittenArgument
from webtune.measure.check import AllClose, PreparedCheck
from webtune.measure.crash_guard import CrashGuard
from webtune.strategies.drive import complete
from webtune.strategies.model import Reading, Request, Round
from webtune.testing import Effect, ScriptedDevice


def _dispatch(label: str) -> Dispatch:
    return Dispatch("", "main", (), (), (1, 1, 1), label)


def _candidate(index: int, *, repeatable: bool = True) -> BenchCandidate:
    return BenchCandidate(f"id{index}", f"k{index}", (_dispatch(f"k{index}"),), repeatable)


def _bench_of(
    device: ScriptedDevice,
    record: Callable[[int], BenchCandidate | Failure] = _candidate,
    *,
    written: Sequence[WrittenArgument] = (),
    evict: Sequence[Dispatch] = (),
    checker: Any = None,
    parallel: int = 1,
    **options: Any,
) -> Bench:
    if parallel > 1:
        options.setdefault("pause", _no_pause)
    conditions = Conditions(tuple(written), tuple(evict), checker)
    return Bench(device, record, conditions, Config(compile_parallelism=parallel), **options)


async def _no_pause() -> None:
    pass


def _ask(bench: Bench, *requests: tuple[int, int, int]) -> list[Reading]:
    return complete(bench.measure(Round(tuple(Request(*request) for request in requests))))


def _kinds(readings: Sequence[Reading]) -> list[FailureKind | None]:
    return [None if r.failure is None else r.failure.kind for r in readings]


@pytest.fixture
def dispatch() -> Any:
    """`dispatch(label)`."""
    return _dispatch


@pytest.fixture
def candidate() -> Any:
    """`candidate(index)`: the one whose id is id0, id1 … and whose label is k0, k1 …"""
    return _candidate


@pytest.fixture
def bench_of() -> Any:
    """`bench_of(device)` with what a bench is given; `parallel` candidates compile at once."""
    return _bench_of


@pytest.fixture
def ask() -> Any:
    """`ask(bench, (candidate, warmups, samples), …)`: the readings of one round."""
    return _ask


@pytest.fixture
def kinds() -> Any:
    """The kinds of failures of readings."""
    return _kinds


class Journal:
    """The store's journal alone."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.begun: list[str] = []
        self.suspects: set[str] = set()
        self.guard = CrashGuard(self, "hw")  # type: ignore[arg-type]

    def begin(self, hardware: str, candidate: str) -> None:
        assert hardware == "hw"
        self.begun.append(candidate)
        self.open.add(candidate)

    def end(self, hardware: str, candidate: str) -> None:
        self.open.discard(candidate)

    def abandon(self, hardware: str) -> None:
        self.suspects |= self.open
        self.open.clear()


@pytest.fixture
def journal() -> Journal:
    return Journal()


# -- checks


@pytest.fixture(params=["numpy", "plain"])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A test that uses it runs on numpy and on plain memory."""
    if request.param == "plain":
        monkeypatch.setattr("webtune.measure.check.numpy_or_none", lambda: None)
        monkeypatch.setattr("webtune.measure.reference.numpy_or_none", lambda: None)
        monkeypatch.setattr("webtune.kernel.arguments.numpy_or_none", lambda: None)
    return str(request.param)


CODES = {"f32": "f", "i32": "i", "u32": "I", "f16": "e", "u8": "B", "f64": "d"}


class Rig:
    """Outputs on a scripted GPU, and candidates that write given values into them."""

    def __init__(
        self,
        rule: AllClose,
        outputs: dict[str, tuple[str, tuple[int, ...]]],
        *,
        restore: Sequence[str] = (),
        start: dict[str, Sequence[float]] | None = None,
        host: Sequence[HostArray] = (),
    ) -> None:
        self.device = ScriptedDevice()
        self.written: list[WrittenArgument] = []
        self.args: list[Buffer | HostArray] = [*host]
        for index, (name, (dtype, shape)) in enumerate(outputs.items()):
            size = int(np.prod(shape))
            nbytes = size * struct.calcsize(CODES[dtype])
            work = self.device.create_buffer(nbytes)
            back = None
            content = _packed(dtype, (start or {}).get(name, [0] * size))
            self.device.write(work, memoryview(content))
            if name in restore:
                pristine = self.device.create_buffer(nbytes)
                self.device.write(pristine, memoryview(content))
                back = Copy(pristine, work, -(-nbytes // 4) * 4)
            self.args.append(Buffer(work, dtype, shape, self.device))
            self.written.append(WrittenArgument(name, index, work, nbytes, dtype, shape, back))
        names = [f"h{i}" for i in range(len(host))] + list(outputs)
        self.check: PreparedCheck = rule.prepare("set", self.args, names)

    def effect(self, effect: Effect, name: str = "candidate") -> Failure | None:
        bindings = tuple(Binding(w.index, "storage", w.handle, w.nbytes) for w in self.written)
        self.device._effect = effect
        program = self.device.compile_now([Dispatch("", "main", (), bindings, (1, 1, 1), name)])
        return complete(self.check.verify(self.device, self.written, program, name))

    def writes(self, *values: Sequence[float] | None, name: str = "candidate") -> Failure | None:
        def effect(views: Sequence[memoryview], _: Dispatch) -> None:
            for view, argument, content in zip(views, self.written, values, strict=True):
                if content is not None:
                    raw = _packed(argument.dtype, content)
                    view[: len(raw)] = raw

        return self.effect(effect, name)


def _packed(dtype: str, values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def _one(reference: Any = None, dtype: str = "f32", n: int = 4, **options: Any) -> Rig:
    rule = AllClose(reference, options.pop("rtol", None), options.pop("atol", None))
    return Rig(rule, {"y": (dtype, (n,))}, **options)


def _gives(*values: float) -> Callable[..., Any]:
    return lambda *arrays: list(values)


@pytest.fixture
def rig_of() -> Any:
    """`rig_of(rule, outputs)`: outputs on a scripted GPU, under a check."""
    return Rig


@pytest.fixture
def one() -> Any:
    """`one(reference)`: a rig with the output y alone, of `n` elements of `dtype`."""
    return _one


@pytest.fixture
def gives() -> Any:
    """`gives(1, 2)`: a reference that expects these elements."""
    return _gives

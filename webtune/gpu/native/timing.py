"""Spans of native launches: by timestamps at pass boundaries, else by N against 2N executions."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from webtune.gpu.base import (
    COPY_DST,
    COPY_SRC,
    MAP_READ,
    QUERY_RESOLVE,
    Clock,
    Copy,
    Dispatch,
    Shot,
    Span,
    padded_bytes,
)
from webtune.gpu.clock import (
    choose_period,
    estimate_quantum_ticks,
    quantum_ns,
    ticks_to_ns,
    wall_resolution_ns,
)
from webtune.gpu.native.link import Link
from webtune.gpu.native.programs import NativeProgram, Programs

_BATCH = 128
_OPENING_PASSES = 24
_OPENING_PAUSE_S = 0.006
_OPENING_LIMIT_S = 0.03
_TRIVIAL = "@compute @workgroup_size(1) fn main() {}"


def encode_copies(encoder: Any, copies: Sequence[Copy]) -> None:
    """Record copies of whole words, as WebGPU wants them."""
    for copy in copies:
        nbytes = min(padded_bytes(copy.nbytes), copy.source.size, copy.target.size)
        encoder.copy_buffer_to_buffer(copy.source, 0, copy.target, 0, nbytes)


def encode_pass(encoder: Any, program: Any, repeat: int, writes: Any = None) -> None:
    """Record a compute pass that runs `program` `repeat` times, with timestamps `writes`."""
    compute_pass = encoder.begin_compute_pass(timestamp_writes=writes)
    program.encode(compute_pass, repeat)
    compute_pass.end()


def open_timer(link: Link, programs: Programs, owner: object) -> TimestampTimer | WallTimer:
    """The best clock that the device really has: timestamps, when it has them and they agree
    with the host's clock; the wall otherwise."""
    trivial = programs.build(owner, [Dispatch(_TRIVIAL, "main", (), (), (1, 1, 1), "webtune")])
    if "timestamp-query" in link.raw.features:
        timer = TimestampTimer.open(link, trivial)
        if timer is not None:
            return timer
    return WallTimer(link, trivial)


class TimestampTimer:
    """One query set, one resolve buffer and one mapped buffer, reused for every batch."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.clock = Clock("timestamp", 1, 1.0)
        with link.guard() as raw:
            self._queries = raw.create_query_set(type="timestamp", count=2 * _BATCH)
        self._resolved = link.buffer(16 * _BATCH, QUERY_RESOLVE | COPY_SRC, "webtune ticks")
        self._mapped = link.buffer(16 * _BATCH, MAP_READ | COPY_DST, "webtune ticks")

    @classmethod
    def open(cls, link: Link, trivial: NativeProgram) -> TimestampTimer | None:
        """A timer with its period and quantum found by measuring, or None when the device's
        ticks contradict the host's clock. Takes some 10 to 40 ms."""
        timer, shot = cls(link), Shot(trivial)
        timer._ticks([shot] * 2)  # Some drivers compile inside the first dispatch.
        first_ns = time.perf_counter_ns()
        timer._shoot(shot, 0)
        time.sleep(_OPENING_PAUSE_S)
        timer._shoot(shot, 1)
        readings = timer._resolve(2)
        wall_ns = time.perf_counter_ns() - first_ns
        period_ns = choose_period(readings[-1] - readings[0], wall_ns, _periods(link.raw))
        if period_ns is None:
            timer.close()
            return None
        deadline_ns = time.perf_counter_ns() + round(_OPENING_LIMIT_S * 1e9)
        for _ in range(3):
            readings += timer._ticks([shot] * (_OPENING_PASSES // 3))
            if time.perf_counter_ns() > deadline_ns:
                break
        step_ns = quantum_ns(estimate_quantum_ticks(readings), period_ns)
        timer.clock = Clock("timestamp", step_ns, period_ns)
        return timer

    def take(self, shots: Sequence[Shot]) -> list[Span]:
        """A span for each shot, taken in order on an idle queue."""
        spans: list[Span] = []
        for start in range(0, len(shots), _BATCH):
            batch = shots[start : start + _BATCH]
            submitted_ns = []
            for index, shot in enumerate(batch):
                submitted_ns.append(time.perf_counter_ns())
                self._shoot(shot, index)
            ticks = self._resolve(len(batch))
            done_ns = time.perf_counter_ns()
            for index, shot in enumerate(batch):
                begin, end = ticks[2 * index], ticks[2 * index + 1]
                elapsed_ns = ticks_to_ns(begin, end, self.clock.period_ns)
                spans.append(Span(elapsed_ns, shot.repeat, done_ns - submitted_ns[index]))
        return spans

    def close(self) -> None:
        """Destroy the timer's own objects."""
        for made in (self._queries, self._resolved, self._mapped):
            made.destroy()

    def _ticks(self, shots: Sequence[Shot]) -> list[int]:
        for index, shot in enumerate(shots):
            self._shoot(shot, index)
        return self._resolve(len(shots))

    def _shoot(self, shot: Shot, index: int) -> None:
        writes = {
            "query_set": self._queries,
            "beginning_of_pass_write_index": 2 * index,
            "end_of_pass_write_index": 2 * index + 1,
        }
        with self._link.commands() as encoder:
            _encode_before(encoder, shot)
            encode_pass(encoder, shot.program, shot.repeat, writes)

    def _resolve(self, count: int) -> list[int]:
        """Raw readings of the first `count` shots, two of each."""
        self._mapped = self._link.unmapped(self._mapped)
        with self._link.commands() as encoder:
            encoder.resolve_query_set(self._queries, 0, 2 * count, self._resolved, 0)
            encoder.copy_buffer_to_buffer(self._resolved, 0, self._mapped, 0, 16 * count)
        return self._link.fetch(self._mapped, 16 * count).cast("B").cast("Q").tolist()


class WallTimer:
    """The host's clock. The time of N executions is that of a launch of 2N less that of a launch
    of N, which cancels what every launch costs."""

    def __init__(self, link: Link, trivial: NativeProgram) -> None:
        self._link = link
        self._mapped = link.buffer(4, MAP_READ | COPY_DST, "webtune wall")
        self._source = link.buffer(4, COPY_SRC | COPY_DST, "webtune wall")
        launches_ns = [self._launch_ns(trivial, 1) for _ in range(25)]
        step_ns = round(time.get_clock_info("perf_counter").resolution * 1e9)
        self.clock = Clock("wall", wall_resolution_ns(launches_ns[2:], step_ns))

    def take(self, shots: Sequence[Shot]) -> list[Span]:
        """A span for each shot, taken in order on an idle queue."""
        return [self._span(shot) for shot in shots]

    def close(self) -> None:
        """Destroy the timer's own objects."""
        for made in (self._mapped, self._source):
            made.destroy()

    def _span(self, shot: Shot) -> Span:
        started_ns = time.perf_counter_ns()
        self._prepare(shot)
        once_ns = self._launch_ns(shot.program, shot.repeat)
        self._prepare(shot)
        twice_ns = self._launch_ns(shot.program, 2 * shot.repeat)
        wall_ns = time.perf_counter_ns() - started_ns
        return Span(twice_ns - once_ns, shot.repeat, wall_ns, once_ns + twice_ns)

    def _prepare(self, shot: Shot) -> None:
        if shot.before or shot.evict is not None:
            with self._link.commands() as encoder:
                _encode_before(encoder, shot)
            self._link.drain()

    def _launch_ns(self, program: Any, repeat: int) -> int:
        self._mapped = self._link.unmapped(self._mapped)
        with self._link.guard() as raw:
            encoder = raw.create_command_encoder()
            encode_pass(encoder, program, repeat)
            encoder.copy_buffer_to_buffer(self._source, 0, self._mapped, 0, 4)
        started_ns = time.perf_counter_ns()
        self._link.submit(encoder)
        self._link.fetch(self._mapped, 4)
        return time.perf_counter_ns() - started_ns


def _encode_before(encoder: Any, shot: Shot) -> None:
    encode_copies(encoder, shot.before)
    if shot.evict is not None:
        encode_pass(encoder, shot.evict, 1)


def _periods(raw: Any) -> list[float]:
    """Candidates for ns per tick, the likeliest first. wgpu-native resolves raw ticks and exports
    their period; implementations without that function resolve ns, as WebGPU has it."""
    library = sys.modules.get(type(raw).__module__.rpartition(".")[0])
    try:
        period = float(library.lib.wgpuQueueGetTimestampPeriod(raw.queue._internal))  # type: ignore[union-attr]
    except Exception:
        return [1.0]
    return [1.0] if period in (0.0, 1.0) else [period, 1.0]

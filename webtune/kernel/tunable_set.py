"""A set of candidates that do the same job, and what they share.

The order of a set is the order of fallbacks while nothing is tuned, and decides nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypedDict, Unpack

from webtune.errors import ArgumentError, KernelError
from webtune.fingerprint.classes import state_of
from webtune.fingerprint.content import content_of
from webtune.fingerprint.digests import candidate_id, digest
from webtune.gpu.base import Device
from webtune.kernel.arguments import Argument, Buffer, bind_argument, describe
from webtune.kernel.candidates import (
    Candidate,
    Enumeration,
    Group,
    Priority,
    feature_names,
    memberships,
)
from webtune.kernel.options import call_option, check_options
from webtune.kernel.recorder import Recorder
from webtune.kernel.signature import arguments_of, check_names, renamed
from webtune.kernel.space import Params, Space
from webtune.kernel.work import Work, checked_work

_BETWEEN_PAUSES = 16
"""Candidates that are enumerated before an event loop gets its turn."""


class SetOptions(TypedDict, total=False):
    """What every set takes by keyword; `TunableSet` describes it."""

    restore: Sequence[str]
    key: Callable[..., Any] | None
    check: Any
    work: Callable[..., Work | None] | None
    inputs: Callable[..., Sequence[Any]] | None
    evict: Callable[..., None] | None
    short_circuit: bool


class TunableSet:
    """Candidates for the same job, with what they share.

    `name` is what picks are remembered under. The options:

    - `arguments`: names of the arguments, where the candidates' functions do not tell them.
    - `outputs`: names of the arguments that candidates write (for functions; a `Kernel` reads it
      in its WGSL).
    - `restore`: names of written arguments that are also read, so that every sample starts from
      the same content.
    - `key(*args)`: what tells one problem from another, of plain JSON values; by default every
      argument's dtype and shape, and the values of small integer arrays.
    - `check`: an object such as `AllClose`, which compares each candidate's answer.
    - `work(*args)`: a `Work`, the least that any candidate must do (of a `Kernel` it is
      `work(params, *args)`).
    - `inputs(*args)`: a list of arguments to tune on, instead of clones of the caller's.
    - `evict(recorder, *args)`: device work to run before every sample, outside the timed span.
    - `short_circuit=False`: tune to the end, even when a candidate is as fast as the device allows.

    Raises `KernelError` for an option that there is not or that does not fit. What one of the
    functions raises becomes a `UsageError` that names the set and the function.
    """

    environment: str | None = None
    """Set by webtune for what depends on the hardware alone: the one environment of its picks."""
    _raw_dtypes: Sequence[str] = ()
    """The dtype that a raw buffer is taken to hold, for each argument, where it is declared."""

    def __init__(
        self,
        name: str,
        *,
        arguments: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        **options: Unpack[SetOptions],
    ) -> None:
        if not isinstance(name, str) or not name:
            raise KernelError("a set needs a name: it is what its picks are remembered under")
        if not name.isprintable():  # lone surrogates are not, and no store can hold them
            raise KernelError(f"the name {name!r} has characters that cannot be printed")
        check_options(name, options, {"arguments", "outputs", *SetOptions.__optional_keys__})
        self.name = name
        self.arguments = tuple(arguments) if arguments is not None else None
        self.outputs = tuple(outputs) if outputs is not None else None
        restore = options.get("restore", ())
        self.restore = (restore,) if isinstance(restore, str) else tuple(restore)
        self.key = options.get("key")
        self.check = options.get("check")
        self.work = options.get("work")
        self.inputs = options.get("inputs")
        self.evict = options.get("evict")
        self.short_circuit = options.get("short_circuit", True)
        is_check = hasattr(self.check, "prepare") and not isinstance(self.check, type)
        if self.check is not None and not is_check:
            raise KernelError(
                f"{name}: check= takes a check such as wt.AllClose(reference=function), "
                f"not {self.check!r}"
            )
        self._sources: list[Callable[[], Iterable[Candidate]]] = []
        self._enumerated: Enumeration | None = None
        self._validity: tuple[tuple[Any, ...], str] = ((), "")
        self._found = ""
        """How the arguments were found, for messages."""
        self._check_names()

    # -- building ---------------------------------------------------------------------------

    def tunable(
        self,
        name: str,
        *,
        params: Space | None = None,
        groups: Mapping[Group, Priority] | None = None,
        requires: Iterable[str] = (),
        repeat: bool = True,
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Decorate `fn(recorder, *args)`, or `fn(recorder, params, *args)` with a space, as one
        candidate, or as one for every point of the space.

        - `groups`: the candidate's groups, with its priority inside each.
        - `requires`: device features without which it is rejected.
        - `repeat=False`: a sample must not run it more than once in a row.

        Raises `KernelError` where the function takes other arguments than the set.
        """
        attached = memberships(self.name, groups)
        features = feature_names(self.name, requires)
        points: Iterable[Params] = [Params({})] if params is None else params

        def decorate(function: Callable[..., None]) -> Callable[..., None]:
            self._learn_arguments(function, with_params=params is not None)

            def build() -> Iterator[Candidate]:
                content = content_of(function)  # late: what it names may be defined below it
                made_of: Any = {"wgsl": [content], "entries": [], "extra": repeat}
                for point in points:
                    made = candidate_id(name, params=dict(point), **made_of)
                    label = name if params is None else f"{name}({point})"
                    record = _recording(function, *([] if params is None else [point]))
                    yield Candidate(label, point, made, record, attached, features, repeat)

            self._append(build)
            return function

        return decorate

    def add(self, other: TunableSet, *, groups: Mapping[Group, Priority] | None = None) -> None:
        """Join another set's candidates, such as another `Kernel` for the same job, with their
        names behind the other set's. `groups` are added to the groups that they are in. Raises
        `KernelError` where the other set takes another number of arguments."""
        if other is self:
            raise KernelError(f"{self.name}: a set cannot be added to itself")
        if self.arguments is None:
            self.arguments = other.arguments
        elif other.arguments is not None and len(other.arguments) != len(self.arguments):
            raise KernelError(
                f"{self.name} takes {len(self.arguments)} arguments, {other.name} takes "
                f"{len(other.arguments)}; alternatives must take the same"
            )
        if other.outputs is not None:
            outputs = renamed(other.outputs, other.arguments, self.arguments)
            self.outputs = tuple(dict.fromkeys((*(self.outputs or ()), *outputs)))
        restored = renamed(other.restore, other.arguments, self.arguments)
        self.restore = tuple(dict.fromkeys((*self.restore, *restored)))
        self._check_names()
        attached = memberships(self.name, groups)
        self._append(
            lambda: (
                replace(
                    candidate,
                    name=f"{other.name}: {candidate.name}",
                    groups=(*candidate.groups, *attached),
                )
                for candidate in other.candidates
            )
        )

    def _append(self, source: Callable[[], Iterable[Candidate]]) -> None:
        self._sources.append(source)
        self._enumerated = None

    def _learn_arguments(self, function: Callable[..., None], *, with_params: bool) -> None:
        names, found = arguments_of(self.name, function, with_params=with_params)
        if self.arguments is None:
            if names is None:
                raise KernelError(
                    f"{self.name}: {found} takes any arguments; name each of them, or tell their "
                    "names with TunableSet(…, arguments=[…])"
                )
            self.arguments, self._found = names, found
            self._check_names()
        elif names is not None and len(names) != len(self.arguments):
            raise KernelError(
                f"{self.name} takes {', '.join(self.arguments)}; this function takes "
                f"{', '.join(names) or 'nothing'}: {found}"
            )

    def _check_names(self) -> None:
        if self.arguments is not None:
            options = {"restore": self.restore, "outputs": self.outputs or ()}
            check_names(self.name, options, self.arguments, self._found)

    # -- candidates -------------------------------------------------------------------------

    @property
    def _all(self) -> Enumeration:
        if self._enumerated is None:
            found = chain.from_iterable(source() for source in self._sources)
            self._enumerated = Enumeration(self.name, tuple(found))
        return self._enumerated

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, in the order of fallbacks. Enumerates the spaces when first asked; raises
        `KernelError` where there is none, or two have one name."""
        return self._all.candidates

    async def enumerate(self, pause: Callable[[], Awaitable[None]]) -> None:
        """Enumerate the spaces now, with `pause` awaited on the way: a page stays alive while a
        large set is read for the first time."""
        if self._enumerated is not None:
            return
        found: list[Candidate] = []
        for candidate in chain.from_iterable(source() for source in self._sources):
            found.append(candidate)
            if len(found) % _BETWEEN_PAUSES == 1:
                await pause()
        self._enumerated = Enumeration(self.name, tuple(found))

    @property
    def fingerprint(self) -> str:
        """A digest of all candidates: names, WGSL, params, entry points, measurement schema."""
        return self._all.fingerprint

    @property
    def order(self) -> str:
        """A digest of the candidates in their order: an index means something only beside it."""
        return self._all.order

    @property
    def validity(self) -> str:
        """What a stored pick is of: the fingerprint, how samples start, and which check its
        candidates passed."""
        now = (self._all, self.check, self.restore)
        before, text = self._validity
        if not before or any(part is not other for part, other in zip(now, before, strict=True)):
            passed = ""
            if self.check is not None:
                # A check's settings, its functions by what they do.
                state = sorted(state_of(self.check).items())
                settings = [[name, content_of(value)] for name, value in state]
                passed = digest([type(self.check).__qualname__, settings])
            text = f"{self.fingerprint}/{digest(sorted(self.restore))}/{passed}"
            self._validity = (now, text)
        return text

    def accepts(self, validity: str) -> bool:
        """Whether a pick of that `validity` is one of this set: checked alike, where it checks."""
        mine, theirs = self.validity.split("/"), validity.split("/")
        return mine[:2] == theirs[:2] and mine[2:] in ([""], theirs[2:])

    def __len__(self) -> int:
        return len(self.candidates)

    # -- calls ------------------------------------------------------------------------------

    def bind(self, args: Sequence[Any], device: Device) -> tuple[Argument, ...]:
        """The caller's arguments as buffers and host arrays. Raises `ArgumentError`."""
        names = self.arguments
        if names is not None and len(args) != len(names):
            raise ArgumentError(
                f"{self.name} takes {len(names)} argument{'s' * (len(names) != 1)} "
                f"({', '.join(names) or 'none'}), {len(args)} given"
                + (f"; {self._found}" if self._found else "")
            )
        dtypes = self._raw_dtypes or ["u32"] * len(args)
        return tuple(
            bind_argument(self.name, self.argument_name(n), arg, device, dtypes[n])
            for n, arg in enumerate(args)
        )

    def argument_name(self, index: int) -> str:
        """The argument's name, or its number where it has none."""
        return self.arguments[index] if self.arguments else str(index)

    def key_of(self, args: Sequence[Argument]) -> Any:
        """What tells this problem from another: plain JSON values. `UsageError` when `key=`
        raises."""
        if self.key is not None:
            return call_option(self.name, "key", self.key, *args)
        return [describe(argument) for argument in args]

    def work_of(self, args: Sequence[Argument]) -> Work | None:
        """The work of this problem, or None where it is not told. `UsageError` when `work=` raises
        or returns something else."""
        if self.work is None:
            return None
        return checked_work(self.name, call_option(self.name, "work", self.work, *args))

    def written(self, args: Sequence[Argument]) -> tuple[int, ...]:
        """Indices of the arguments that some candidate may write: a tune clones these."""
        if self.outputs is None or self.arguments is None:
            return tuple(n for n, argument in enumerate(args) if isinstance(argument, Buffer))
        names = {*self.outputs, *self.restore}
        return tuple(n for n, name in enumerate(self.arguments) if name in names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def _recording(
    function: Callable[..., None], *leading: Params
) -> Callable[[Recorder, tuple[Argument, ...]], None]:
    def record(recorder: Recorder, args: tuple[Argument, ...]) -> None:
        function(recorder, *leading, *args)

    return record

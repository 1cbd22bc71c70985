"""Ways to do one thing: a tunable is one way, a set is all of them with what they share.

The order of a set is the order of fallbacks while nothing is tuned, and decides nothing else.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webtune.errors import ArgumentError, KernelError, Reject, UsageError, WebtuneError
from webtune.fingerprint.content import content_of
from webtune.fingerprint.classes import state_of
from webtune.fingerprint.digests import candidate_id, digest, set_fingerprint
from webtune.gpu.base import Device
from webtune.kernel.arguments import Argument, Buffer, HostArray, as_host_array, dtype_bytes
from webtune.kernel.recorder import Recorder
from webtune.kernel.space import Params, Space
from webtune.kernel.work import Work

__all__ = ["Candidate", "Group", "TunableSet", "called", "feature_names", "priority_of"]

_BETWEEN_PAUSES = 16
_REFUSALS = (UsageError, ArgumentError, KernelError)
Priority = int | Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class Group:
    """Tunables that are tried together. Higher `priority` first, a negative one skips the group;
    a function gets the key. `patience` (adaptive strategy): after so many candidates of the group
    in a row that do not improve on the best, the rest of it is skipped. `UsageError` for what is
    no whole number."""

    name: str
    priority: Priority = 0
    patience: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.priority):
            priority_of(f"group {self.name!r}", self.priority)
        if self.patience is not None and not (_is_whole(self.patience) and self.patience > 0):
            raise UsageError(
                f"group {self.name!r}: patience={self.patience!r}; it is how many candidates in a "
                "row, at least 1, or None"
            )

    def priority_for(self, key: Any) -> int:
        """The priority for one key."""
        return priority_of(f"group {self.name!r}", self.priority, key)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One candidate. `record(recorder, args)` says what it runs; `id` is the digest of everything
    that it is made of; `requires` are features without which it is rejected."""

    name: str
    params: Params
    id: str
    record: Callable[[Recorder, tuple[Argument, ...]], None]
    groups: tuple[tuple[Group, Priority], ...] = ()
    requires: frozenset[str] = frozenset()
    repeat: bool = True


class TunableSet:
    """Candidates for the same job, with what they share.

    - `restore`: names of written arguments that are also read, so that every sample starts from
      the same content. `outputs`: names of the arguments that candidates write (for functions;
      a `Kernel` reads it in its WGSL).
    - `key(*args)`: what tells one problem from another, of plain JSON values; by default every
      argument's dtype and shape, and the values of small integer arrays.
    - `check`: an object such as `AllClose`. `work(*args)`: a `Work`, the least that any candidate
      must do (of a `Kernel` it is `work(params, *args)`).
    - `inputs(*args)`: a list of arguments to tune on, instead of clones of the caller's.
    - `evict`: device work to run before every sample, outside the timed span:
      `evict(recorder, *args)`.
    What one of these functions raises becomes a `UsageError` that names the set and the function.
    """

    environment: str | None = None
    """Set by webtune for what depends on the hardware alone: the one environment of its picks."""

    def __init__(
        self,
        name: str,
        *,
        arguments: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        restore: Sequence[str] = (),
        key: Callable[..., Any] | None = None,
        check: Any = None,
        work: Callable[..., Work | None] | None = None,
        inputs: Callable[..., Sequence[Any]] | None = None,
        evict: Callable[..., None] | None = None,
        short_circuit: bool = True,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise KernelError("a set needs a name: it is what its picks are remembered under")
        if not name.isprintable():  # lone surrogates are not, and no store can hold them
            raise KernelError(f"the name {name!r} has characters that cannot be printed")
        if check is not None and (isinstance(check, type) or not hasattr(check, "prepare")):
            raise KernelError(
                f"{name}: check= takes a check such as wt.AllClose(reference=function), "
                f"not {check!r}"
            )
        self.name = name
        self.arguments = tuple(arguments) if arguments is not None else None
        self.outputs = tuple(outputs) if outputs is not None else None
        self.restore = tuple([restore] if isinstance(restore, str) else restore)
        self.check = check
        self.inputs = inputs
        self.evict = evict
        self.short_circuit = short_circuit
        self._key = key
        self._work = work
        self._sources: list[Callable[[], Iterable[Candidate]]] = []
        self._candidates: tuple[Candidate, ...] | None = None
        self._digest: str | None = None
        self._order: str | None = None
        self._validity: tuple[Any, tuple[str, ...], str] = (None, (), "")
        self._learned = ""
        if arguments is not None:
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
        candidate, or one for every point of the space."""

        def add(function: Callable[..., None]) -> Callable[..., None]:
            self._learn_arguments(function, params is not None)
            points: Iterable[Params] = [Params({})] if params is None else params
            attached = attached_groups(self.name, groups)
            needs = feature_names(self.name, requires)

            def build() -> Iterator[Candidate]:
                # Not before: what the function names may be defined below it.
                text = content_of(function)
                for point in points:
                    yield Candidate(
                        name=f"{name}({point})" if params is not None else name,
                        params=point,
                        id=candidate_id(
                            name, wgsl=[text], params=dict(point), entries=[], extra=repeat
                        ),
                        record=_caller(function, point if params is not None else None),
                        groups=attached,
                        requires=needs,
                        repeat=repeat,
                    )

            self._append(build)
            return function

        return add

    def add(self, other: TunableSet, *, groups: Mapping[Group, Priority] | None = None) -> None:
        """Join another set's candidates: alternatives with different WGSL sources in one set."""
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
            self.outputs = tuple(
                dict.fromkeys((*(self.outputs or ()), *self._mine(other, "outputs")))
            )
        self.restore = tuple(dict.fromkeys((*self.restore, *self._mine(other, "restore"))))
        self._check_names()
        attached = attached_groups(self.name, groups)
        prefix = f"{other.name}: "

        def build() -> Iterator[Candidate]:
            for one in other.candidates:
                yield Candidate(
                    name=prefix + one.name,
                    params=one.params,
                    id=one.id,
                    record=one.record,
                    groups=(*one.groups, *attached),
                    requires=one.requires,
                    repeat=one.repeat,
                )

        self._append(build)

    def _mine(self, other: TunableSet, what: str) -> Iterator[str]:
        """Another set's arguments by the names that the same places have here."""
        names: tuple[str, ...] = getattr(other, what)
        for name in names:
            if self.arguments and other.arguments and name in other.arguments:
                yield self.arguments[other.arguments.index(name)]
            else:
                yield name

    def _append(self, build: Callable[[], Iterable[Candidate]]) -> None:
        self._sources.append(build)
        self._candidates = self._digest = self._order = None
        self._validity = (None, (), "")

    def _learn_arguments(self, function: Callable[..., None], spaced: bool) -> None:
        found = inspect.signature(function).parameters.values()
        positional = [
            parameter.name
            for parameter in found
            if parameter.kind
            in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            and parameter.default is inspect.Parameter.empty  # what a loop binds is no argument
        ]
        given = ["the recorder", "the parameters"] if spaced else ["the recorder"]
        names = tuple(positional[len(given) :])
        called_as = f"{getattr(function, '__name__', 'it')}({', '.join(positional)})"
        form = (
            f"{called_as} was decorated with{'' if spaced else 'out'} params=, so it gets "
            f"{', '.join(given)} and then the arguments"
        )
        if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in found):
            if self.arguments is not None:
                return
            raise KernelError(
                f"{self.name}: {called_as} takes any arguments; name each of them, or tell their "
                "names with TunableSet(…, arguments=[…])"
            )
        if len(positional) < len(given):
            raise KernelError(f"{self.name}: {form}")
        if self.arguments is None:
            self.arguments = names
            self._learned = form
            self._check_names()
        elif len(names) != len(self.arguments):
            raise KernelError(
                f"{self.name} takes {', '.join(self.arguments)}; this function takes "
                f"{', '.join(names) or 'nothing'}: {form}"
            )

    def _check_names(self) -> None:
        for what, names in (("restore", self.restore), ("outputs", self.outputs or ())):
            unknown = [name for name in names if name not in (self.arguments or ())]
            if unknown and self.arguments is not None:
                raise KernelError(
                    f"{self.name}: {what}= names {', '.join(unknown)}; "
                    f"the arguments are {', '.join(self.arguments) or 'none'}"
                    + (f" ({self._learned})" if self._learned else "")
                )

    # -- reading ----------------------------------------------------------------------------

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, in the order of fallbacks. Enumerates the spaces when first asked."""
        if self._candidates is None:
            self._candidates = self._checked([one for build in self._sources for one in build()])
        return self._candidates

    async def enumerate(self, pause: Callable[[], Awaitable[None]]) -> None:
        """Enumerate the spaces now, with `pause` awaited on the way: a page stays alive while a
        large set is read for the first time."""
        if self._candidates is not None:
            return
        found = []
        for build in self._sources:
            for place, one in enumerate(build()):
                found.append(one)
                if place % _BETWEEN_PAUSES == 0:
                    await pause()
        self._candidates = self._checked(found)

    def _checked(self, found: Sequence[Candidate]) -> tuple[Candidate, ...]:
        if not found:
            raise KernelError(f"{self.name} has no candidates; add at least one")
        names: set[str] = set()
        for one in found:
            if one.name in names:
                raise KernelError(f"{self.name} has two candidates called {one.name!r}")
            names.add(one.name)
        return tuple(found)

    @property
    def fingerprint(self) -> str:
        """A digest of all candidates: names, WGSL, params, entry points, measurement schema."""
        if self._digest is None:
            self._digest = set_fingerprint(self.name, [one.id for one in self.candidates])
        return self._digest

    @property
    def order(self) -> str:
        """A digest of the candidates in their order: an index means something only beside it."""
        if self._order is None:
            self._order = digest([one.id for one in self.candidates])
        return self._order

    @property
    def validity(self) -> str:
        """What a stored pick is of: the fingerprint, how samples start, and which check its
        candidates passed."""
        check, restore, text = self._validity
        if not text or check is not self.check or restore != self.restore:
            check, restore = self.check, self.restore
            passed = "" if check is None else digest([type(check).__qualname__, _state(check)])
            text = f"{self.fingerprint}/{digest(sorted(restore))}/{passed}"
            self._validity = (check, restore, text)
        return text

    def accepts(self, validity: str) -> bool:
        """Whether a pick of that validity is one of this set: checked alike, where it checks."""
        mine, theirs = self.validity.split("/"), validity.split("/")
        return mine[:2] == theirs[:2] and mine[2:] in ([""], theirs[2:])

    def bind(self, args: Sequence[Any], device: Device) -> tuple[Argument, ...]:
        """The caller's arguments as buffers and host arrays. Raises `ArgumentError`."""
        names = self.arguments
        if names is not None and len(args) != len(names):
            raise ArgumentError(
                f"{self.name} takes {len(names)} argument{'s' * (len(names) != 1)} "
                f"({', '.join(names) or 'none'}), {len(args)} given"
                + (f"; {self._learned}" if self._learned else "")
            )
        return tuple(self._bind_one(place, arg, device) for place, arg in enumerate(args))

    def _bind_one(self, place: int, arg: Any, device: Device) -> Argument:
        if isinstance(arg, Buffer):
            if arg.owner is not device:
                raise ArgumentError(
                    f"{self.name}: argument {self.argument_name(place)} lives on another device; "
                    "upload it with this tuner"
                )
            if arg.handle is None:
                raise ArgumentError(
                    f"{self.name}: argument {self.argument_name(place)} was destroyed"
                )
            return arg
        if isinstance(arg, HostArray):
            return arg
        nbytes = device.adopt(arg)
        if nbytes is not None:
            dtype = self.dtype_hint(place)
            return Buffer(arg, dtype, (nbytes // dtype_bytes(dtype),), device)
        host = as_host_array(arg)
        if host is None:
            raise ArgumentError(
                f"{self.name}: argument {self.argument_name(place)} is of type "
                f"{type(arg).__name__}; pass a webtune buffer, this device's own buffer, or "
                "anything with the buffer protocol (a number goes into an override constant or "
                "a small array)"
            )
        return host

    def dtype_hint(self, place: int) -> str:
        """The dtype that a raw buffer given as this argument is taken to hold."""
        return "u32"

    def argument_name(self, place: int) -> str:
        """The argument's name, or its number."""
        return self.arguments[place] if self.arguments else str(place)

    @property
    def has_key_function(self) -> bool:
        """Whether `key=` was given."""
        return self._key is not None

    def key_of(self, args: Sequence[Argument]) -> Any:
        """What tells this problem from another: plain JSON values."""
        if self._key is not None:
            return called(self.name, "key", self._key, *args)
        return [_describe(arg) for arg in args]

    def work_of(self, args: Sequence[Argument]) -> Work | None:
        """The work of this problem, or None when nobody told it."""
        if self._work is None:
            return None
        return self._told(called(self.name, "work", self._work, *args))

    def _told(self, work: Any) -> Work | None:
        """What `work=` returned, if it is work."""
        if work is None:
            return None
        if not isinstance(work, Work):
            raise KernelError(
                f"{self.name}: work= returned {work!r}; return wt.Work(flops=…, bytes=…)"
            )
        try:
            flops, nbytes = float(work.flops), float(work.bytes)
        except (TypeError, ValueError, OverflowError):
            flops = nbytes = -1.0
        if not (0 <= flops < math.inf and 0 <= nbytes < math.inf):
            raise KernelError(
                f"{self.name}: work= returned {work!r}; both are finite numbers of at least 0"
            )
        return Work(flops, nbytes)

    def written(self, args: Sequence[Argument]) -> tuple[int, ...]:
        """Places of the arguments that some candidate may write: a tune clones these."""
        if self.outputs is None or self.arguments is None:
            return tuple(place for place, arg in enumerate(args) if isinstance(arg, Buffer))
        names = {*self.outputs, *self.restore}
        return tuple(place for place, name in enumerate(self.arguments) if name in names)

    def __len__(self) -> int:
        return len(self.candidates)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def _state(check: Any) -> list[list[str]]:
    """A check's settings, its functions by what they do."""
    return [[name, content_of(value)] for name, value in sorted(state_of(check).items())]


def attached_groups(name: str, groups: Mapping[Group, Priority] | None) -> tuple[Any, ...]:
    given: Any = groups if groups is not None else {}
    pairs = tuple(given.items()) if isinstance(given, Mapping) else ()
    if isinstance(given, Mapping) and all(
        isinstance(group, Group) and (callable(priority) or _is_whole(priority))
        for group, priority in pairs
    ):
        return pairs
    raise KernelError(
        f"{name}: groups= maps wt.Group objects to priorities inside them (whole numbers, or "
        f"functions of the key), such as {{group: 0}}, not {given!r}"
    )


def called(name: str, what: str, function: Callable[..., Any], *args: Any) -> Any:
    """What a function of the caller returns. What it raises becomes a `UsageError` that says which
    function of which kernel it was; one that it raises on purpose keeps its class. A device's
    failure stays as it is; without a name, inside a candidate, every error of webtune's own does,
    and is the candidate's reason."""
    try:
        return function(*args)
    except Exception as error:
        whose = f"{name}: {what}=" if name else f"{what}="
        if name and type(error) in _REFUSALS:
            raise type(error)(f"{whose} refused: {error}") from error
        if isinstance(error, WebtuneError) and not (name and isinstance(error, Reject)):
            raise
        raise UsageError(f"{whose} raised {type(error).__name__}: {error}") from error


def feature_names(name: str, needs: Any) -> frozenset[str]:
    """What `requires=` names. `KernelError` for what are no names."""
    try:
        found = frozenset([needs] if isinstance(needs, str) else needs)
    except TypeError:
        found = frozenset([needs])
    if all(isinstance(each, str) for each in found):
        return found
    raise KernelError(
        f"{name}: requires= takes names of features, such as ['subgroups'], not {needs!r}"
    )


def priority_of(name: str, priority: Any, key: Any = None) -> int:
    """A priority for one key as a whole number. `UsageError` on anything else."""
    if callable(priority):
        priority = called(name, "priority", priority, key)
    if not _is_whole(priority):
        raise UsageError(f"{name}: priority= came out as {priority!r}; it must be a whole number")
    return int(priority)


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _caller(
    function: Callable[..., None], params: Params | None
) -> Callable[[Recorder, tuple[Argument, ...]], None]:
    def record(recorder: Recorder, args: tuple[Argument, ...]) -> None:
        if params is None:
            function(recorder, *args)
        else:
            function(recorder, params, *args)

    return record


def _describe(arg: Argument) -> list[Any]:
    # Small integer arrays hold sizes, which make another problem; numbers with a fraction are data.
    if isinstance(arg, HostArray) and arg.dtype[0] in "iu" and arg.nbytes <= 64:
        return [arg.dtype, list(arg.shape), list(arg)]
    return [arg.dtype, list(arg.shape)]

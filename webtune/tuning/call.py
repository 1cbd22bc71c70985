"""One call, understood: which set, on which arguments, under which key, in which memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from webtune.config import Config
from webtune.errors import ArgumentError, KeyUnserialisable
from webtune.fingerprint.digests import canonical
from webtune.gpu.base import Device
from webtune.kernel.anchor import at_level
from webtune.kernel.arguments import Argument, Buffer
from webtune.kernel.candidates import TunableSet
from webtune.store.base import Address, Store
from webtune.tuning.pick_cache import LookUp, PickCache, Picks

__all__ = ["Gathering", "Place", "Problem", "Problems", "environment"]

_ENVIRONMENT: list[list[str]] = []
_PICKS: dict[str, Picks] = {}
_PICKS_OF: WeakKeyDictionary[Store, Picks] = WeakKeyDictionary()
_MOST_FORMS = 1024


@contextmanager
def environment(name: str) -> Any:
    """Use another set of picks in this process while the block runs: its own records, in the same
    store. Tunes under way settle into the environment in which they began."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ArgumentError("an environment has a name, such as environment('laptop on battery')")
    mine = [name]  # by identity: blocks of one name may nest, and threads leave in any order
    _ENVIRONMENT.append(mine)
    try:
        yield
    finally:
        _ENVIRONMENT[:] = [each for each in _ENVIRONMENT if each is not mine]


Place = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Problem:
    """A set, its bound arguments, its key, where its record lies and which memory knows it."""

    kernel: TunableSet
    args: tuple[Argument, ...]
    key: Any
    address: Address
    cache: PickCache

    @property
    def place(self) -> Place:
        """The key in memory. A pick is an index, so it is good for one order of one set only; and
        a call that began before a switch of the environment must not answer after it."""
        kernel, address = self.kernel, self.address
        return (kernel.order, kernel.validity, address.environment, address.key)

    @property
    def data_bytes(self) -> int:
        """The bytes of all buffers among the arguments, each counted once."""
        buffers = {id(arg.handle): arg.nbytes for arg in self.args if isinstance(arg, Buffer)}
        return sum(buffers.values())


class Gathering(Protocol):
    """What collects problems instead of having them tuned."""

    @property
    def launch(self) -> bool:
        """Whether kernels run too."""
        ...

    def reach(self, problem: Problem) -> LookUp:
        """The application asked for this problem."""
        ...


class Problems:
    """Understands the calls of one tuner. A call of a known form costs a dictionary look-up."""

    def __init__(self, device: Device, store: Store, config: Config) -> None:
        self._device = device
        self._config = config
        self._hardware = device.identity.digest
        # Tuners whose stores are one place share their memory.
        scope = store.scope
        if scope is None:
            self._picks = _PICKS_OF.setdefault(store, Picks())
        else:
            self._picks = _PICKS.setdefault(scope, Picks())
        self._forms: dict[tuple[Any, ...], tuple[Any, Address]] = {}

    @property
    def environment(self) -> str:
        """The environment in force now."""
        return _ENVIRONMENT[-1][0] if _ENVIRONMENT else self._config.environment

    @property
    def known(self) -> int:
        """How many keys memory has a pick for, on this device's hardware."""
        return self._picks.known(self._hardware)

    def address(self, kernel: TunableSet, key: Any) -> Address:
        """Where the record of a set's key lies, in the environment in force now.
        `KeyUnserialisable`."""
        where = kernel.environment or self.environment
        try:
            text = canonical(key)
        except KeyUnserialisable as error:
            raise KeyUnserialisable(f"{kernel.name}: {error}") from error
        return Address(where, self._hardware, kernel.name, text)

    def understand(self, kernel: TunableSet, args: Sequence[Any]) -> Problem:
        """Bind the arguments and find the key. `ArgumentError`, `KeyUnserialisable`."""
        given: Any = kernel
        if not isinstance(given, TunableSet):
            raise ArgumentError(
                f"the first argument is of type {type(given).__name__}; pass a Kernel or TunableSet"
            )
        bound = kernel.bind(args, self._device)
        form = (kernel, self.environment, *[arg.form for arg in bound])
        known = self._forms.get(form)
        if known is None:
            with at_level(self._config.anchor_level):
                key = kernel.key_of(bound)
            known = key, self.address(kernel, key)
            # A key= function may look at more than the forms of the arguments.
            if not kernel.has_key_function:
                if len(self._forms) >= _MOST_FORMS:
                    self._forms.clear()
                self._forms[form] = known
        cache = self._picks.of(kernel.name, self._hardware, known[1].environment)
        return Problem(kernel, bound, *known, cache)

"""A call, understood: which kernel, on which arguments, under which key, in which memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from webtune.config import Config
from webtune.errors import ArgumentError, KeyUnserialisable
from webtune.fingerprint.digests import canonical
from webtune.gpu.base import Device
from webtune.kernel.anchor import at_level
from webtune.kernel.arguments import Argument, Buffer
from webtune.kernel.tunable_set import TunableSet
from webtune.store.base import Address, Store
from webtune.tuning.pick_cache import PickCache, PickCaches

_ENVIRONMENTS: list[list[str]] = []
"""The environments in force, innermost last; a list by itself, so that each block finds its own."""
_CACHES: dict[str, PickCaches] = {}
_CACHES_OF: WeakKeyDictionary[Store, PickCaches] = WeakKeyDictionary()
_MOST_FORMS = 1024

CacheKey = tuple[str, str, str, str]
"""(order of the candidates, validity, environment, key): what a pick in memory is good for."""


@contextmanager
def environment(name: str) -> Iterator[None]:
    """Use another set of picks in this process while the block runs, with its own decisions in the
    same store. Tunes under way end in the environment in which they began. Raises `ArgumentError`
    for a name that is empty or cannot be printed."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ArgumentError("an environment has a name, such as environment('laptop on battery')")
    block = [name]  # told apart by identity: blocks of one name may nest, and threads may overlap
    _ENVIRONMENTS.append(block)
    try:
        yield
    finally:
        _ENVIRONMENTS[:] = [other for other in _ENVIRONMENTS if other is not block]


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel, its bound arguments, its key, the address of its decision, and the memory that
    knows its picks."""

    kernel: TunableSet
    args: tuple[Argument, ...]
    key: Any
    address: Address
    cache: PickCache

    @property
    def cache_key(self) -> CacheKey:
        """The key in memory. A pick is an index, so it is good for one order of one kernel only;
        and a call that began before a switch of the environment must not answer after it."""
        kernel, address = self.kernel, self.address
        return (kernel.order, kernel.validity, address.environment, address.key)

    @property
    def data_bytes(self) -> int:
        """The bytes of all buffers among the arguments, each counted once."""
        buffers = {id(arg.handle): arg.nbytes for arg in self.args if isinstance(arg, Buffer)}
        return sum(buffers.values())

    def pick(self) -> int | None:
        """The pick that memory has for this call, in its own environment."""
        return self.cache.pick(self.cache_key, self.address.environment)


class CallReader:
    """Reads the calls of one tuner. A call of a form met before costs a dictionary look-up."""

    def __init__(self, device: Device, store: Store, config: Config) -> None:
        self._device = device
        self._config = config
        self._hardware = device.identity.digest
        # Tuners whose stores are one place share their memory.
        if store.scope is None:
            self._caches = _CACHES_OF.setdefault(store, PickCaches())
        else:
            self._caches = _CACHES.setdefault(store.scope, PickCaches())
        self._forms: dict[tuple[Any, ...], tuple[Any, Address]] = {}

    @property
    def environment(self) -> str:
        """The environment in force now."""
        return _ENVIRONMENTS[-1][0] if _ENVIRONMENTS else self._config.environment

    @property
    def picks(self) -> int:
        """How many keys memory has a pick for, on this device's hardware."""
        return self._caches.count(self._hardware)

    def address(self, kernel: TunableSet, key: Any) -> Address:
        """Where the decision of a kernel's key lies, in the environment in force now. Raises
        `KeyUnserialisable`."""
        try:
            text = canonical(key)
        except KeyUnserialisable as error:
            raise KeyUnserialisable(f"{kernel.name}: {error}") from error
        where = kernel.environment or self.environment
        return Address(where, self._hardware, kernel.name, text)

    def read(self, kernel: TunableSet, args: Sequence[Any]) -> Call:
        """Bind the arguments and find the key. Raises `ArgumentError` and `KeyUnserialisable`."""
        if not isinstance(kernel, TunableSet):
            raise ArgumentError(
                f"the first argument is of type {type(kernel).__name__}; pass a Kernel or "
                "TunableSet"
            )
        bound = kernel.bind(args, self._device)
        form = (kernel, self.environment, *[arg.form for arg in bound])
        found = self._forms.get(form)
        if found is None:
            with at_level(self._config.anchor_level):
                key = kernel.key_of(bound)
            found = key, self.address(kernel, key)
            # A key= function may look at more than the forms of the arguments.
            if kernel.key is None:
                if len(self._forms) >= _MOST_FORMS:
                    self._forms.clear()
                self._forms[form] = found
        key, address = found
        cache = self._caches.of(kernel.name, self._hardware, address.environment)
        return Call(kernel, bound, key, address, cache)

"""The decisions of one tuner's device: memory first, then the store.

A decision that was not measured is kept in memory only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from webtune.errors import DeviceLost
from webtune.kernel.tunable_set import TunableSet
from webtune.store.base import Address, Selector
from webtune.store.decision import CandidateResult, Decision
from webtune.tuning.call import Call
from webtune.tuning.context import Context
from webtune.tuning.decision import no_valid_kernel, pick_of, reordered, undecided
from webtune.tuning.pick_cache import Claim, Hit, LookUp


class Explained(NamedTuple):
    """A decision and where it comes from: "tuned", "store", "memory", "single" (a kernel of one
    candidate), or "miss", "pending" and "compiled" for a key without a decision."""

    decision: Decision
    source: str


class Repository:
    """Finds, keeps and forgets decisions by their address. Safe for threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store
        self._unstored: dict[Address, Decision] = {}

    def find(self, address: Address) -> Decision | None:
        """The newer of what memory and the store have."""
        own, stored = self._unstored.get(address), self._store.get(address)
        if own is None or stored is None:
            return own or stored
        return stored if stored.created_s > own.created_s else own

    def winner(self, kernel: TunableSet, address: Address) -> CandidateResult | None:
        """The winner of the decision at an address, if that is valid for the kernel."""
        decision = self.find(address)
        if decision is None or not kernel.accepts(decision.fingerprint):
            return None
        return decision.winner

    def pick(self, call: Call) -> int | None:
        """The index of the winner of the decision for a call, if there is a valid one."""
        return pick_of(call.kernel, self.find(call.address))

    def keep(self, address: Address, decision: Decision) -> bool:
        """Remember a decision. True when it outlives this process."""
        if decision.measured and self._store.put(address, decision):
            self._unstored.pop(address, None)
            return True
        self._unstored[address] = decision
        return False

    def forget(self, address: Address) -> None:
        """Nothing of this address is remembered any more."""
        self._unstored.pop(address, None)
        self._store.purge(Selector.of(address))

    def is_persisted(self, call: Call) -> bool:
        """Whether the store, and not memory alone, has the decision of a call."""
        return call.address not in self._unstored

    def commit(self, call: Call, claim: Claim, decision: Decision) -> Decision:
        """End a claim with a decision, keep it, and tell the observer. Raises `NoValidKernel` where
        it names no winner, or `DeviceLost` where that is why."""
        context, pick = self._context, pick_of(call.kernel, decision)
        decision = replace(
            decision,
            clock=context.device.clock,
            device=context.device.identity.label,
            versions=context.host.versions,
            created_s=context.host.now_s(),
        )
        stored = False
        if pick is not None:
            claim.resolve(pick)
            stored = self.keep(call.address, decision)
        context.observer.decided(call, decision, stored=stored)
        if pick is None:
            error = no_valid_kernel(call.kernel, decision)
            if context.device.lost is not None:
                raise DeviceLost(context.device.lost) from error
            raise error
        return decision

    def explain(self, call: Call, state: LookUp) -> Explained:
        """What is known of a call that memory answers with `state`. Starts nothing."""
        kernel, decision = call.kernel, self.find(call.address)
        if decision is not None and kernel.accepts(decision.fingerprint):
            source = "memory" if isinstance(state, Hit) else "store"
            return Explained(reordered(decision, kernel), source)
        lone = len(kernel.candidates) == 1
        source = "single" if lone else type(state).__name__.lower()
        return Explained(undecided(kernel, state.index if isinstance(state, Hit) else None), source)

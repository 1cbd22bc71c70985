"""The contracts of device and store, their bodies run inside a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from webtune.testing.browser import PythonPage

HERE = Path(__file__).parent
CONTRACTS = {"device": "gpu", "store": "store"}
INSIDE = (HERE / "inside_contracts.py").read_text()


@pytest.mark.parametrize("where", ["314 main", "0.27 worker"])
@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_contract_is_kept_in_a_page(
    shared: Callable[[str], PythonPage], contract: str, where: str
) -> None:
    source = (HERE.parent / CONTRACTS[contract] / "test_contract.py").read_text()
    found = shared(where).run_source(
        INSIDE, f"{contract}_contract", blocking=True, timeout_s=120, source=source
    )
    assert not found["failed"], "\n\n".join(
        f"{name}\n{trace}" for name, trace in found["failed"].items()
    )
    assert len(found["passed"]) > 20

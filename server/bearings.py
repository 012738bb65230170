"""Where a run stands, read in one visit to the book: what advice on its next step depends on."""

from collections.abc import Mapping
from typing import Any

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Rung
from kernelgate.budget.records import RunRecord
from kernelgate.server.advice import Bearings, leader_of
from kernelgate.server.prices import expected_s, leasts_s
from kernelgate.tools.kit.spec import MeasuringTool


def bearings_of(
    ledger: Ledger,
    measuring: Mapping[Rung, MeasuringTool[Any, Any, Any, Any, Any]],
    run: RunRecord,
    environment_id: str,
) -> Bearings:
    """Of a run whose next calls are made in this environment."""
    prices = ledger.prices(run.task_digest, environment_id)
    return Bearings(
        purse=ledger.spendable(run.run_id),
        prices_s=expected_s(measuring, prices),
        leasts_s=leasts_s(measuring, prices),
        leader=leader_of(ledger.history(run.run_id), ledger.rule_of(run).decide, run.parameters),
        holder=next(iter(ledger.jobs_that_hold(run.run_id)), None),
        cap=ledger.binding_cap(run.run_id),
    )

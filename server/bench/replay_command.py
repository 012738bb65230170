"""`kernelgate bench replay`: promotion rules over recorded or simulated streams, without a device."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kernelgate.budget.ladder.compare import Compared, Total, compare, total
from kernelgate.budget.ladder.model import Truth
from kernelgate.budget.ladder.noise import TooLittle, noise_of
from kernelgate.budget.ladder.orders import orders as orders_of
from kernelgate.budget.ladder.play import play
from kernelgate.budget.ladder.recorded import recorded_truths
from kernelgate.budget.ladder.simulate import KINDS, simulate
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.promotion import Rule
from kernelgate.budget.rules import find_rules
from kernelgate.server.bench.replay_tables import compared_table, totals_table
from kernelgate.server.trouble import Trouble, guarded

SEED: Final = 1
"""The same book gives the same shuffles and streams."""

Chosen = Sequence[tuple[Rule[Any], dict[str, float]]]


def replay_book(
    path: Path, run_id: str | None, rules: str, changes: Sequence[str], *, orders: int, simulated: int, as_json: bool
) -> int:
    """Replay rules over the flat runs of a book, or over streams simulated with its noise; print a table or JSON."""

    def replaying() -> int:
        chosen = chosen_rules(rules, changes)
        with Ledger.reading(path) as book:
            found = recorded_truths(book, run_id)
        if not found.truths:
            raise Trouble(
                f'{path} has no run to replay rules on: start one with start_run(rule="flat"), or with '
                f"""rule = "flat" in kernelgate.toml. {" ".join(found.left_out)}"""
            )
        groups = _simulated(found.truths, str(path), simulated) if simulated else {"": found.truths}
        rows = {name: _rows(truths, chosen, orders) for name, truths in groups.items()}
        totals = [(name, each) for name, of_group in rows.items() for each in _totals(of_group)]
        listed = [] if simulated else rows[""]
        if as_json:
            print(_as_json(listed, totals, found.left_out, orders))  # noqa: T201 -- the command's output is JSON
            return 0
        console = Console(soft_wrap=True, highlight=False)
        if listed:
            console.print(compared_table(listed, orders))
        console.print(totals_table(totals))
        for sentence in found.left_out:
            console.print(f"Left out: {sentence}")
        return 0

    return guarded(replaying, as_json=as_json)


def chosen_rules(names: str, changes: Iterable[str]) -> Chosen:
    """Rules by name, with their parameters.

    Raises:
        Trouble: a rule or a parameter that is not known, or a value outside of its limits.
    """
    known = find_rules()
    wanted = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    given: dict[str, dict[str, float]] = defaultdict(dict)
    for change in changes:
        place, _, value = change.partition("=")
        rule, _, parameter = place.partition(".")
        try:
            given[rule][parameter] = float(value)
        except ValueError:
            raise Trouble(f"--set takes RULE.PARAMETER=VALUE, for example halving.eta=4, got {change!r}") from None
    unknown = [name for name in (*wanted, *given) if name not in known]
    if unknown or not wanted:
        raise Trouble(f"there is no rule {unknown[0] if unknown else ''!r}; the rules are: {', '.join(known)}")
    if idle := [name for name in given if name not in wanted]:
        raise Trouble(f"--set is about {idle[0]}, which --rules does not name")
    try:
        return [(known[name], known[name].parameters(given[name])) for name in wanted]
    except ValueError as error:
        raise Trouble(str(error)) from None


def _simulated(truths: Sequence[Truth], source: str, count: int) -> dict[str, tuple[Truth, ...]]:
    try:
        noise = noise_of(truths, source)
    except TooLittle as error:
        raise Trouble(str(error)) from None
    return {kind: tuple(simulate(kind, noise, count, SEED)) for kind in KINDS}


def _rows(truths: Iterable[Truth], chosen: Chosen, orders: int) -> list[Compared]:
    return [
        compare(truth, play(truth, rule, parameters, order))
        for truth in truths
        for rule, parameters in chosen
        for order in (orders_of(truth, orders, SEED) if orders else (None,))
    ]


def _totals(rows: Iterable[Compared]) -> list[Total]:
    by_rule: dict[str, list[Compared]] = defaultdict(list)
    for row in rows:
        by_rule[row.rule].append(row)
    return [total(of_rule) for of_rule in by_rule.values()]


def _as_json(
    rows: Sequence[Compared], totals: Sequence[tuple[str, Total]], left_out: Sequence[str], orders: int
) -> str:
    found: Mapping[str, object] = {
        "ok": True,
        "orders": orders,
        "streams": [row.model_dump(mode="json") for row in rows],
        "totals": [{"kind": name or "recorded", **each.model_dump(mode="json")} for name, each in totals],
        "left_out": list(left_out),
    }
    return json.dumps(found, indent=2, allow_nan=False)

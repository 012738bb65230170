"""`kernelgate bench`: ladder against flat. Each command imports what it needs when it runs."""

import sys
from pathlib import Path

import click

from kernelgate.server.command_options import data_option, settings_from


@click.group()
def bench() -> None:
    """Compare promotion rules: what each would have spent, and what it would have found."""


@bench.command("replay")
@click.argument("ledger", required=False, type=click.Path(path_type=Path))
@click.option("--run", "run_id", help="Only this run; it must be under the rule flat.")
@click.option("--rules", default="halving,threshold,flat", show_default=True, help="Rules to replay, with commas.")
@click.option(
    "--set", "changes", multiple=True, metavar="RULE.PARAMETER=VALUE", help="A parameter; may be given again."
)
@click.option("--orders", type=click.IntRange(0, 10_000), default=0, help="Shuffle each stream so often.")
@click.option(
    "--simulate", type=click.IntRange(0, 10_000), default=0, help="So many simulated streams of each kind instead."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@data_option
def bench_replay(
    ledger: Path | None, run_id: str | None, rules: str, changes: tuple[str, ...], orders: int, simulate: int,
    data: Path | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Replay rules over the runs of LEDGER that were measured without a gate (rule flat); no device is used."""
    from kernelgate.server.bench_commands import replay_book

    book = ledger or settings_from(data).ledger
    sys.exit(replay_book(book, run_id, rules, changes, orders=orders, simulated=simulate, as_json=as_json))

"""`kernelgate bench`: ladder against flat. Each command imports what it needs when it runs."""

import sys
from pathlib import Path
from typing import Any

import click

from kernelgate.server.command_options import data_option, settings_from, settings_options
from kernelgate.server.settings import resolved


@click.group(short_help="Compare promotion rules, played or replayed.")
def bench() -> None:
    """Compare promotion rules: what each would have spent, and what it would have found."""


@bench.command("replay", short_help="Replay rules over recorded runs, without a device.")
@click.argument("ledger", required=False, type=click.Path(path_type=Path))
@click.option("--run", "run_id", help="Only this run; it must be under the rule flat.")
@click.option("--rules", default="halving,threshold,flat", show_default=True, help="Rules to replay, with commas.")
@click.option(
    "--set", "changes", multiple=True, metavar="RULE.PARAMETER=VALUE", help="A parameter; may be given again."
)
@click.option("--orders", type=click.IntRange(0, 10_000), default=0, help="Shuffle each run's candidates so often.")
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
    from kernelgate.server.bench.replay_command import replay_book

    book = ledger or settings_from(data).ledger
    sys.exit(replay_book(book, run_id, rules, changes, orders=orders, simulated=simulate, as_json=as_json))


@bench.command("ladder", short_help="Play streams without a gate and with one.")
@click.argument("streams", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--rules",
    multiple=True,
    default=("halving,threshold,flat",),
    show_default=True,
    help="What is replayed on flat's truth.",
)
@click.option("--live", multiple=True, default=("halving",), show_default=True, help="Rules that are played too.")
@click.option("--task", default=None, help="Task of the candidates; default: the name of each file.")
@click.option("--budget-device-s", type=click.FloatRange(min=0, min_open=True), help="Of each pass; default: enough.")
@click.option("--seed", type=int, default=0, show_default=True, help="Draws which pass of a stream runs first.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="JSON file of the report.")
@click.option("--plots", type=click.Path(path_type=Path), help="Folder of plots (needs kernelgate[plots]).")
@settings_options
def bench_ladder(
    streams: tuple[Path, ...], rules: tuple[str, ...], live: tuple[str, ...], task: str | None,
    budget_device_s: float | None, seed: int, output: Path | None, plots: Path | None, **options: Any,
) -> None:  # fmt: skip
    """Play each of STREAMS (JSON lines: id, parent, source, note) through a server, without a gate and with one.

    `flat` is the truth; each rule of --live runs beside it on the same data folder, in random order, and --rules are
    replayed on the truth. With --data the ledgers are kept as evidence, one folder a stream. The exit status is 0; 1
    where the report is partial (a budget that ended, a server that was lost, a candidate left behind by a fault); 2
    where it cannot begin; 130 after Ctrl-C.
    """
    from kernelgate.server.bench.ladder_command import Wish, parted, run_ladder

    data = options["data"]
    wish = Wish(
        paths=streams, rules=parted(rules), live=parted(live), task=task, budget_device_s=budget_device_s, seed=seed,
        output=resolved(output) if output else None, plots=resolved(plots) if plots else None,
        data=resolved(data) if data else None,
    )  # fmt: skip
    sys.exit(run_ladder(settings_from(**options), wish))


@bench.command("plot", short_help="Draw the plots of a report.")
@click.argument("report", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder of the plots.")
def bench_plot(report: Path, output: Path) -> None:
    """Draw the plots of a REPORT that `bench ladder` wrote: best so far against device seconds, one SVG a stream."""
    from kernelgate.server.bench.ladder_command import draw

    sys.exit(draw(report, output))

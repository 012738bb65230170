"""`kernelgate bench ladder` and `bench plot`: streams through servers of their own, a report, a table, plots."""

import contextlib
import random
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from mcp import Client, MCPError, StdioServerParameters
from rich.console import Console
from rich.markup import escape

from kernelgate.budget.errors import one_line
from kernelgate.budget.ladder.model import FLAT, Stream
from kernelgate.budget.ladder.play import Step
from kernelgate.budget.ladder.stream import BadStream, read_stream
from kernelgate.budget.rules import find_rules
from kernelgate.server.bench import plots
from kernelgate.server.bench.ladder_tables import all_streams_table, closing, stream_table
from kernelgate.server.bench.live import Pass, Player
from kernelgate.server.bench.report import (
    LadderReport,
    StreamReport,
    WarmUp,
    ladder_report,
    read_report,
    stream_report,
)  # fmt: skip
from kernelgate.server.bench.serving import server_on, warm_up
from kernelgate.server.policy import MOST_S
from kernelgate.server.preflight import require
from kernelgate.server.reading_commands import write
from kernelgate.server.settings import Settings, from_environment
from kernelgate.server.task_commands import named
from kernelgate.server.trouble import Trouble, guarded, leaves
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Task

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells have it."""
NOT_KEPT: Final = "not kept (--data keeps it)"


@dataclass(frozen=True)
class Wish:
    """What was asked for."""

    paths: tuple[Path, ...]
    rules: tuple[str, ...]
    live: tuple[str, ...]
    task: str | None
    budget_device_s: float | None
    seed: int
    output: Path | None
    plots: Path | None
    data: Path | None


def run_ladder(settings: Settings, wish: Wish) -> int:
    """Play the streams; 0 if all of it was played, 1 where the report is partial, 130 after Ctrl-C."""
    try:
        return guarded(lambda: _Bench(settings, wish).run())
    except KeyboardInterrupt:  # before the first stream or behind the last one; click's own status would mean partial
        return INTERRUPTED


def draw(report_file: Path, folder: Path) -> int:
    """Plots of a report that was written earlier."""

    def drawing() -> int:
        written = plots.draw(read_report(report_file), folder)
        Console(soft_wrap=True, highlight=False, markup=False).print(
            "\n".join([f"plot: {path}" for path in written] or ["The report has nothing to draw."])
        )
        return 0

    return guarded(drawing)


@dataclass(eq=False)
class _Play:
    """One stream on its way."""

    stream: Stream
    task: Task
    order: tuple[str, ...]
    ledger: str
    players: list[Player] = field(default_factory=list[Player])
    warm_up: WarmUp | None = None
    why: list[str] = field(default_factory=list[str])

    def report(self, parameters: Mapping[str, Mapping[str, float]]) -> StreamReport:
        passes: list[Pass] = [seen for player in self.players if (seen := player.seen()) is not None]
        return stream_report(
            self.stream, passes, self.order, parameters, ledger=self.ledger, warm_up=self.warm_up, why=self.why
        )


class _Bench:
    """One command: everything that can be a mistake is asked before anything is spent."""

    def __init__(self, settings: Settings, wish: Wish) -> None:
        self._settings, self._wish = settings, wish
        self._console = Console(soft_wrap=True, highlight=False)
        self._live, self._parameters = _rules_of(wish, settings)
        if wish.budget_device_s is not None and not 0 < wish.budget_device_s <= MOST_S:
            raise Trouble(f"--budget-device-s is above 0 and up to {MOST_S:g}, got {wish.budget_device_s:g}")
        self._streams = _streams_of(wish)
        require(settings)
        # Tasks that were added with `kernelgate tasks add` lie in the usual data folder, not in that of this command.
        usual = from_environment().own_tasks
        self._task_dirs = (*settings.task_dirs, *((usual,) if usual.is_dir() else ()))
        catalogue = Catalogue(self._task_dirs, settings.kernelbench)
        self._tasks = [named(catalogue, stream.task) for stream in self._streams]
        self._done: list[StreamReport] = []
        self._require_places()

    def _require_places(self) -> None:
        for stream in self._streams:
            if self._wish.data is not None and (self._wish.data / stream.name / "ledger.db").exists():
                raise Trouble(
                    f"{self._wish.data / stream.name} has a ledger already, which would answer from the book; "
                    "name another folder with --data"
                )
        kept = [self._wish.data / stream.name for stream in self._streams] if self._wish.data is not None else []
        for place in (self._wish.output.parent if self._wish.output else None, self._wish.plots, *kept):
            if place is not None:
                plots.make_folder(place)
        self._keep()  # a file that cannot be written must be told before hours of a device are spent

    def run(self) -> int:
        if self._wish.plots is not None and (lacking := plots.why_not()):
            self._console.print(f"[yellow]note[/] {escape(lacking)} All else is written.")
        status = 0
        for stream, task in zip(self._streams, self._tasks, strict=True):
            drawn = [FLAT, *self._live]
            random.Random(f"{self._wish.seed}:{stream.name}").shuffle(drawn)
            with self._folder(stream) as (folder, ledger):
                playing = _Play(stream, task, tuple(drawn), ledger)
                try:
                    self._through(playing, folder)
                except KeyboardInterrupt:
                    status = INTERRUPTED
                    playing.why.append("Ctrl-C")
                self._tell(playing.report(self._parameters))
            if status:
                break
        report = self._keep()
        self._close(report)
        return status or (1 if report.partial else 0)

    @contextlib.contextmanager
    def _folder(self, stream: Stream) -> Generator[tuple[Path, str]]:
        if self._wish.data is not None:
            yield self._wish.data / stream.name, f"{stream.name}/ledger.db"
            return
        with tempfile.TemporaryDirectory(prefix="kernelgate-bench-", ignore_cleanup_errors=True) as scratch:
            yield Path(scratch) / stream.name, NOT_KEPT

    def _through(self, playing: _Play, folder: Path) -> None:
        """Both passes; what ends them early is a reason of the report."""
        server = server_on(self._settings, folder, self._task_dirs, playing.stream)
        try:
            anyio.run(self._play, server, playing)
        except (MCPError, Trouble, BaseExceptionGroup) as error:
            told = [leaf for leaf in leaves(error) if isinstance(leaf, MCPError | Trouble)]
            if not told:
                raise
            lost = isinstance(told[0], MCPError)
            playing.why.append(f"the server is gone ({told[0]})" if lost else one_line(str(told[0])))

    async def _play(self, server: StdioServerParameters, playing: _Play) -> None:
        name = escape(playing.stream.name)
        with self._console.status(f"{name}: starting") as status:

            def begins(what: str) -> None:
                status.update(what)
                if not self._console.is_terminal:  # there nothing of a status is seen, and a pass takes minutes
                    self._console.print(escape(f"{what} …"))

            async with Client(server) as client:
                try:
                    begins(f"{name}: the reference climbs once, to warm up")
                    playing.warm_up = await warm_up(client, playing.task)
                    for rule in playing.order:

                        def on_step(place: int, step: Step, rule: str = rule) -> None:
                            status.update(f"{name} under {rule}: {place} of {len(playing.stream.lines)}, {step.rung}")

                        begins(f"{name} under {rule}: {len(playing.stream.lines)} candidates")
                        playing.players.append(Player(client, playing.stream, rule))
                        await playing.players[-1].play(self._wish.budget_device_s, on_step)
                        self._keep(playing.report(self._parameters))
                except Trouble as trouble:  # caught in here: outside it would come wrapped in the client's task groups
                    playing.why.append(one_line(str(trouble)))

    def _keep(self, current: StreamReport | None = None) -> LadderReport:
        """Write what there is by now: whatever ends this command, what was measured stays."""
        report = ladder_report(
            [*self._done, *((current,) if current else ())], seed=self._wish.seed, rules=self._wish.rules,
            live=self._live, budget_device_s=self._wish.budget_device_s, expected=len(self._streams),
        )  # fmt: skip
        if self._wish.output is not None:
            write([report.model_dump_json(indent=1)], self._wish.output)
        return report

    def _tell(self, each: StreamReport) -> None:
        self._done.append(each)
        self._keep()
        self._console.print(stream_table(each))
        for word, sentences in (("partial", each.why_partial), ("note", each.notes)):
            for sentence in sentences:
                self._console.print(f"[yellow]{word}[/] {escape(sentence)}")

    def _close(self, report: LadderReport) -> None:
        if len(report.streams) > 1 and report.totals:
            self._console.print(all_streams_table(report))
        for sentence in closing(report):
            self._console.print(escape(sentence))
        if self._wish.plots is not None and not plots.why_not():
            drawn = plots.draw(report, self._wish.plots)
            self._console.print(f"plots:  {self._wish.plots} ({len(drawn)})", markup=False)
        if self._wish.output is not None:
            self._console.print(f"report: {self._wish.output}", markup=False)
        data = self._wish.data
        for kept in [NOT_KEPT] if data is None else [str(data / each.ledger) for each in self._done]:
            self._console.print(f"ledger: {kept}", markup=False)


def _rules_of(wish: Wish, settings: Settings) -> tuple[tuple[str, ...], dict[str, dict[str, float]]]:
    """The rules that are run beside flat, and those that are replayed on its truth with their parameters."""
    known = find_rules()
    for name in (*wish.rules, *wish.live):
        if name not in known:
            raise Trouble(f"there is no rule {name!r}; the rules are: {', '.join(known)}")
    live = tuple(dict.fromkeys(name for name in wish.live if name != FLAT))
    replayed = dict.fromkeys(name for name in wish.rules if name != FLAT)
    return live, {name: known[name].parameters(settings.policy.rules.get(name, {})) for name in replayed}


def _streams_of(wish: Wish) -> list[Stream]:
    found: dict[str, Stream] = {}
    for path in wish.paths:
        try:
            stream = read_stream(path, wish.task)
        except BadStream as error:
            raise Trouble(str(error)) from None
        if stream.name in found:
            raise Trouble(f"two streams are named {stream.name}: give their files different names")
        found[stream.name] = stream
    return list(found.values())


def parted(names: Sequence[str]) -> tuple[str, ...]:
    """Names of an option that may be given again and with commas, each once."""
    return tuple(dict.fromkeys(part.strip() for name in names for part in name.split(",") if part.strip()))

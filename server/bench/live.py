"""A stream under one rule, live: an MCP client takes each candidate up the ladder, call by call, and writes it down.

Two passes over one data folder must not answer each other: the same source in one account is answered from the book,
and would cost the second pass nothing. So a line `# <rule>` is put behind each source. Within a pass a source that
comes twice is the same candidate to the server, and its second time is free, as it is for any agent.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mcp import Client
from pydantic import Field

from kernelgate.budget.ladder.model import Line, Outcome, Stream
from kernelgate.budget.ladder.play import Step, steps
from kernelgate.budget.model import TOOL_OF_RUNG, RefusalKind, Rung, Verdict
from kernelgate.server.asking import answer_of
from kernelgate.server.trouble import Trouble
from kernelgate.tasks.model import Frozen

WAIT_S: Final = 600.0
"""The longest that one call may wait: asking again while a candidate is measured would only disturb the clock."""
ENDS: Final[frozenset[RefusalKind]] = frozenset({"purse", "deadline"})
"""Refusals after which the rest of a stream cannot be played either."""
MOST_FAULTS_IN_A_ROW: Final = 3
"""After so many candidates one after the other that met a fault of the server's side the device is gone."""

Progress: TypeAlias = Callable[[int, Step], None]


class Asked(Frozen):
    """One call of a pass and what came of it: an outcome, a refusal, or a fault on the server's side."""

    id: str
    rung: Rung
    again: bool = False
    """It was refused at this door before."""
    outcome: Outcome | None = None
    refused: RefusalKind | None = None
    said: str = ""
    """Why it was refused, or the fault."""
    wall_s: float = 0.0
    queue_s: float = 0.0
    """Of them waited for the device, which somebody else had."""
    replayed: bool = False
    """Answered from the book: the same source came before in this pass."""


class Pass(Frozen):
    """A stream under one rule, as far as it came."""

    rule: str
    parameters: dict[str, float]
    run_id: str
    device: str
    """As the run's environment names it."""
    unit: str
    """What is charged: `gpu_s` or `cpu_s`."""
    asked: tuple[Asked, ...] = ()
    candidates: dict[str, str] = Field(default_factory=dict[str, str])
    """Id in the stream → candidate id in the ledger."""
    ended: str = ""
    """Why it ended before the stream did; empty where it did not."""


@dataclass(eq=False)
class Player:
    """Plays one stream under one rule. What it saw stays readable where it is interrupted."""

    client: Client
    stream: Stream
    rule: str
    opened: Pass | None = None
    asked: list[Asked] = field(default_factory=list[Asked])
    candidates: dict[str, str] = field(default_factory=dict[str, str])
    ended: str = "it was interrupted"
    """Stands until the pass has come to its end."""

    async def play(self, budget_device_s: float | None, on_step: Progress) -> None:
        """Open a run and play the stream to its end, or to that of the budget; raises `Trouble`, and what a lost
        server raises."""  # noqa: D205, D209 -- one sentence on two lines
        asked = {} if budget_device_s is None else {"device_s": budget_device_s}
        run = (await answer_of(self.client, "start_run", {"task": self.stream.task, "rule": self.rule, **asked}))["run"]
        self.opened = Pass(
            rule=run["rule"], parameters=run.get("rule_parameters", {}), run_id=run["run_id"],
            device=str(run["environment"]["name"]), unit=run["device_unit"],
        )  # fmt: skip
        lines = {line.id: line for line in self.stream.lines}
        calls = steps(lines)
        step = next(calls, None)
        places = {each: place for place, each in enumerate(lines, 1)}
        while step is not None:
            on_step(places[step.id], step)
            self.asked.append(await self._ask(lines[step.id], step))
            if why := self._over():
                self.ended = why
                return
            try:
                step = calls.send(self.asked[-1].outcome)
            except StopIteration:
                step = None
        self.ended = ""

    def seen(self) -> Pass | None:
        """What there is of the pass by now; None where its run was not opened."""
        if self.opened is None:
            return None
        return self.opened.model_copy(
            update={"asked": tuple(self.asked), "candidates": dict(self.candidates), "ended": self.ended}
        )

    async def _ask(self, line: Line, step: Step) -> Asked:
        assert self.opened is not None
        arguments: dict[str, object] = {"wait_s": WAIT_S}
        if step.rung is Rung.compile:
            arguments |= {"run_id": self.opened.run_id, "source": marked(line.source, self.rule), "note": line.note}
            if line.parent is not None and line.parent in self.candidates:
                arguments["parent_id"] = self.candidates[line.parent]
        else:
            arguments["candidate_id"] = self.candidates[line.id]
        begun_s = time.perf_counter()
        try:
            reply = await answer_of(self.client, TOOL_OF_RUNG[step.rung], arguments)
        except Trouble as trouble:
            took_s = time.perf_counter() - begun_s
            return Asked(id=line.id, rung=step.rung, again=step.again, said=str(trouble), wall_s=took_s)
        took_s = time.perf_counter() - begun_s
        self.candidates[line.id] = reply["candidate_id"]
        if reply["status"] == "refused":
            no = reply["refusal"]
            why = no["why"] + (f" (missing: {no['missing']})" if no["missing"] else "")
            return Asked(
                id=line.id, rung=step.rung, again=step.again, refused=no["kind"], said=why, wall_s=took_s
            )  # fmt: skip
        report: dict[str, Any] = reply.get("report") or {}
        outcome = Outcome(
            rung=step.rung, verdict=Verdict(reply["verdict"]), ratio=report.get("ratio"), low=report.get("low"),
            high=report.get("high"), device_s=reply["cost"]["charged_s"], wall_s=took_s,
        )  # fmt: skip
        return Asked(
            id=line.id, rung=step.rung, again=step.again, outcome=outcome, wall_s=took_s,
            queue_s=reply["cost"].get("queue_s", 0.0), replayed=reply["replayed"],
        )  # fmt: skip

    def _over(self) -> str:
        """Why nothing more can be asked; empty where it can."""
        last = self.asked[-1]
        if last.refused in ENDS:
            return f"its budget ended at {last.rung} of {last.id}: {last.said}"
        recent = self.asked[-MOST_FAULTS_IN_A_ROW:]
        if len(recent) == MOST_FAULTS_IN_A_ROW and all(each.outcome is None and not each.refused for each in recent):
            return f"{MOST_FAULTS_IN_A_ROW} candidates in a row met a fault, the last one {last.id}: {last.said}"
        return ""


def marked(source: str, rule: str) -> str:
    """A source that another pass does not have; what it does stays the same."""
    return f"{source.rstrip()}\n# {rule}\n"

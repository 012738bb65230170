"""The scripted agent: calls tools as any MCP client would, and goes by what the replies say."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

from mcp import Client
from rich.console import Console
from rich.markup import escape

from kernelgate.server.asking import answer_of
from kernelgate.server.demo.script import GPU_IDEAS, IDEAS, TASK, Idea
from kernelgate.server.trouble import Trouble

BUDGET: Final = {"device_s": 60.0, "deadline_s": 120.0, "precise_calls": 6}
GPU_BUDGET: Final = {"rule": "flat", "device_s": 60.0, "deadline_s": 120.0, "precise_calls": 1}
"""Of a run with one candidate: there is nothing to rank it against, so the rule lets it through to its class."""
MARKS: Final = {"ok": "[green]+[/]", "failed": "[red]-[/]", "refused": "[yellow]![/]", "running": "[blue]~[/]"}
SAID: Final = {"check_correctness": "check", "quick_time": "quick", "precise_time": "precise", "profile": "profile"}
"""Tool that a step may name → its word in a line."""


@dataclass(eq=False)
class Agent:
    """The scripted agent: it knows what the replies told it, and nothing else."""

    client: Client
    console: Console
    run_id: str = ""
    """Of the softmax."""
    runs: dict[str, str] = field(default_factory=dict[str, str])
    """Task → the run that was opened on it."""
    ids: dict[str, str] = field(default_factory=dict[str, str])
    """Name of an idea → candidate id."""
    best: tuple[str, float] | None = None
    """Of the softmax: candidate id and speed-up."""

    async def call(self, tool: str, arguments: Mapping[str, Any], said: str) -> dict[str, Any]:
        """Call a tool, wait out its job, print one line, and return the structure; raises `Trouble`."""
        with self.console.status(said) as status:

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                status.update(f"{said} · {message or ''}")

            started = time.perf_counter()
            reply = await answer_of(self.client, tool, arguments, on_progress)
        cost: dict[str, Any] = reply.get("cost", {})
        spent = f"{cost.get('charged_s', 0.0):6.3f} s charged" if "cost" in reply else ""
        mark = MARKS[reply["status"]]
        self.console.print(
            f"{mark} {said:<46} {time.perf_counter() - started:5.2f} s {spent:>17}  {escape(reply['summary'])}"
        )
        return reply

    async def play(self) -> None:
        """The whole script: ten ideas for the softmax; on a GPU one more for each other bundled task."""
        await self.call("list_tasks", {"group": "bundled"}, "list_tasks")
        await self.call("get_task", {"task": TASK}, f"get_task {TASK}")
        started = await self.call("start_run", {"task": TASK, **BUDGET}, f"start_run {TASK}")
        self.run_id = self.runs[TASK] = started["run"]["run_id"]
        for idea in IDEAS:
            with self._going_on(idea.name):
                await self.try_idea(idea)
        if self.best is not None:
            with self._going_on("profile"):
                await self.profile(self.best[0], "profile the best")
        with self._going_on("get_budget"):
            await self.call("get_budget", {"run_id": self.run_id}, "get_budget")
        if started["run"]["device"] == "cpu":
            return
        self.console.print("\nThis is a GPU: a Triton candidate for each of the other bundled tasks.\n")
        for task, idea in GPU_IDEAS.items():
            with self._going_on(task):
                await self.try_task(task, idea)

    async def try_idea(self, idea: Idea) -> None:
        """Climb as far as the replies allow: compile to quick in one call, then what `next_steps` offers."""
        reply = await self.submit(self.run_id, idea)
        candidate_id = self.ids[idea.name]
        if reply["status"] != "ok":
            return
        precise = next((step for step in reply.get("next_steps", []) if step["tool"] == "precise_time"), None)
        if precise is None:
            return
        # The script knocks once where the reply already says no, so that a refusal can be seen.
        if not precise["allowed"] and reply["verdict"] != "clearly_slower":
            self._tell_barred(idea, precise)
            return
        reply = await self.call("precise_time", {"candidate_id": candidate_id}, f"{idea.name}: precise")
        if reply["status"] == "refused":
            for step in [step for step in reply.get("next_steps", []) if step["allowed"]][:1]:
                await self.follow(step)
        ratio = reply.get("report", {}).get("ratio")
        if reply.get("verdict") == "faster" and ratio and (self.best is None or ratio > self.best[1]):
            self.best = (candidate_id, ratio)

    async def try_task(self, task: str, idea: Idea) -> None:
        """Open a run and climb with its one candidate: take each rung that the replies offer and allow, once."""
        started = await self.call("start_run", {"task": task, **GPU_BUDGET}, f"start_run {task}")
        run_id = self.runs[task] = started["run"]["run_id"]
        reply = await self.submit(run_id, idea)
        taken: set[str] = set()
        while step := _own_step(reply, self.ids[idea.name], taken):
            if not step["allowed"]:
                self._tell_barred(idea, step)
                return
            taken.add(step["tool"])
            said = f"{idea.name}: {SAID[step['tool']]}"
            if step["tool"] == "profile":
                reply = await self.profile(self.ids[idea.name], said)
            else:
                reply = await self.call(step["tool"], step["arguments"], said)

    async def submit(self, run_id: str, idea: Idea) -> dict[str, Any]:
        """Compile to quick in one call, with the hypothesis as its note; remembers the candidate's id."""
        arguments = {"run_id": run_id, "source": idea.source, "note": idea.hypothesis, "up_to": "quick_time"}
        if idea.parent in self.ids:
            arguments["parent_id"] = self.ids[idea.parent]
        reply = await self.call("compile", arguments, f"{idea.name}: compile -> quick")
        self.ids[idea.name] = reply["candidate_id"]
        return reply

    async def follow(self, step: dict[str, Any]) -> None:
        """Take the step that a refusal offers instead."""
        self.console.print(f"  refused; the reply offers {step['tool']} instead: {escape(step['why'])}")
        if step["tool"] == "profile":
            await self.profile(step["arguments"]["candidate_id"], "profile, as offered")

    async def profile(self, candidate_id: str, said: str) -> dict[str, Any]:
        """Profile a candidate, print what to change, and return the reply."""
        reply = await self.call("profile", {"candidate_id": candidate_id}, said)
        for finding in reply.get("report", {}).get("findings", []):
            self.console.print(f"  {escape(finding['evidence'])}. Try: {escape(finding['change'])}.")
        return reply

    def _tell_barred(self, idea: Idea, step: dict[str, Any]) -> None:
        self.console.print(f"  {idea.name}: {step['tool']} is not allowed now: {escape(step.get('missing', ''))}")

    @contextmanager
    def _going_on(self, what: str) -> Generator[None]:
        """An error reply (a fault on the server's side, work that was lost) ends what it met, not the script."""
        try:
            yield
        except Trouble as trouble:
            self.console.print(f"{MARKS['failed']} {what}: {escape(str(trouble))}")


def _own_step(reply: dict[str, Any], candidate_id: str, taken: set[str]) -> dict[str, Any] | None:
    """The first step that a reply has for a candidate and that was not taken; allowed ones come first."""
    for step in reply.get("next_steps", []):
        if step["tool"] in SAID and step["tool"] not in taken and step["arguments"].get("candidate_id") == candidate_id:
            return cast("dict[str, Any]", step)
    return None

"""Plays the script: a real MCP client over stdio, its live progress, and the closing tables."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import CallToolResult, TextContent
from rich.console import Console
from rich.markup import escape

from kernelgate.budget.ledger import Ledger
from kernelgate.server.demo.script import IDEAS, TASK, Idea
from kernelgate.server.preflight import make_data_folder, require
from kernelgate.server.settings import Settings
from kernelgate.server.tables import funnel_table, leaderboard_table, savings_sentence
from kernelgate.server.trouble import Trouble, guarded, leaves

BUDGET: Final = {"device_s": 60.0, "deadline_s": 120.0, "precise_calls": 6}
MARKS: Final = {"ok": "[green]+[/]", "failed": "[red]-[/]", "refused": "[yellow]![/]", "running": "[blue]~[/]"}


def structure_of(result: CallToolResult) -> dict[str, Any]:
    """The structure of a reply; raises `Trouble` with the text of an error."""
    if result.is_error:
        raise Trouble("".join(part.text for part in result.content if isinstance(part, TextContent)))
    return cast("dict[str, Any]", result.structured_content)


@dataclass(eq=False)
class Agent:
    """The scripted agent: it knows what the replies told it, and nothing else."""

    client: Client
    console: Console
    run_id: str = ""
    ids: dict[str, str] = field(default_factory=dict[str, str])
    """Name of an idea → candidate id."""
    best: tuple[str, float] | None = None

    async def call(self, tool: str, arguments: Mapping[str, Any], said: str) -> dict[str, Any]:
        """Call a tool, wait out its job, print one line, and return the structure."""
        with self.console.status(said) as status:

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                status.update(f"{said} · {message or ''}")

            started = time.perf_counter()
            reply = structure_of(await self.client.call_tool(tool, dict(arguments), progress_callback=on_progress))
            while reply.get("status") == "running":
                waiting = {"job_id": reply["job_id"]}
                waited = await self.client.call_tool("job", waiting, progress_callback=on_progress)
                job = structure_of(waited)["job"]
                if "reply" not in job and job["state"] not in ("queued", "running"):
                    raise Trouble(f"{tool} was not finished: its job {job['job_id']} is {job['state']}")
                reply = job.get("reply", reply)
        cost: dict[str, Any] = reply.get("cost", {})
        spent = f"{cost.get('charged_s', 0.0):6.3f} s charged" if "cost" in reply else ""
        mark = MARKS[reply["status"]]
        self.console.print(
            f"{mark} {said:<46} {time.perf_counter() - started:5.2f} s {spent:>17}  {escape(reply['summary'])}"
        )
        return reply

    async def try_idea(self, idea: Idea) -> None:
        """Climb as far as the replies allow: compile to quick in one call, then what `next_steps` offers."""
        arguments = {"run_id": self.run_id, "source": idea.source, "note": idea.hypothesis, "up_to": "quick_time"}
        if idea.parent in self.ids:
            arguments["parent_id"] = self.ids[idea.parent]
        reply = await self.call("compile", arguments, f"{idea.name}: compile -> quick")
        candidate_id = self.ids[idea.name] = reply["candidate_id"]
        if reply["status"] != "ok":
            return
        steps = {step["tool"]: step for step in reply["next_steps"]}
        precise = steps.get("precise_time")
        if precise is None:
            return
        # The script knocks once where the reply already says no, so that a refusal can be seen.
        if not precise["allowed"] and reply["verdict"] != "clearly_slower":
            self.console.print(f"  {idea.name}: precise_time is not allowed now: {escape(precise.get('missing', ''))}")
            return
        reply = await self.call("precise_time", {"candidate_id": candidate_id}, f"{idea.name}: precise")
        if reply["status"] == "refused":
            for step in [step for step in reply.get("next_steps", []) if step["allowed"]][:1]:
                await self.follow(step)
        ratio = reply.get("report", {}).get("ratio")
        if reply.get("verdict") == "faster" and ratio and (self.best is None or ratio > self.best[1]):
            self.best = (candidate_id, ratio)

    async def follow(self, step: dict[str, Any]) -> None:
        """Take the step that a refusal offers instead."""
        self.console.print(f"  refused; the reply offers {step['tool']} instead: {escape(step['why'])}")
        if step["tool"] == "profile":
            await self.profile(step["arguments"]["candidate_id"], "profile, as offered")

    async def profile(self, candidate_id: str, said: str) -> None:
        """Profile a candidate and print what to change."""
        report = (await self.call("profile", {"candidate_id": candidate_id}, said)).get("report", {})
        for finding in report.get("findings", []):
            self.console.print(f"  {escape(finding['evidence'])}. Try: {escape(finding['change'])}.")

    async def play(self) -> None:
        """The whole script."""
        await self.call("list_tasks", {"group": "bundled"}, "list_tasks")
        await self.call("get_task", {"task": TASK}, f"get_task {TASK}")
        started = await self.call("start_run", {"task": TASK, **BUDGET}, f"start_run {TASK}")
        self.run_id = started["run"]["run_id"]
        for idea in IDEAS:
            await self.try_idea(idea)
        if self.best is not None:
            await self.profile(self.best[0], "profile the best")
        await self.call("get_budget", {"run_id": self.run_id}, "get_budget")


def run_demo(settings: Settings) -> int:
    """Play the demo against a server of its own; the exit status is 0 if a speed-up was found within the budget."""

    def playing() -> int:
        require(settings)
        make_data_folder(settings)
        console = Console(soft_wrap=True, highlight=False)
        console.print("A scripted agent connects over stdio and optimises the row softmax.\n")
        started = time.perf_counter()
        agent = _played(settings, console)
        _close(settings, console, agent, time.perf_counter() - started)
        return 0 if agent.best is not None else 1

    return guarded(playing)


def _played(settings: Settings, console: Console) -> Agent:
    """The agent after its script; raises `Trouble` where the server left it, or groups of what a call raised."""
    command = [*("-m", "kernelgate.server", "serve", "--data", str(settings.data_dir))]
    if settings.device:
        command += ["--device", settings.device]
    server = StdioServerParameters(command=sys.executable, args=command)
    try:
        return anyio.run(_play, server, console)
    except (MCPError, BaseExceptionGroup) as error:
        lost = next((leaf for leaf in leaves(error) if isinstance(leaf, MCPError)), None)
        if lost is None:
            raise
        raise Trouble(f"the demo's server is gone ({lost}); see its log, {settings.log}") from None


async def _play(server: StdioServerParameters, console: Console) -> Agent:
    async with Client(server) as client:
        agent = Agent(client, console)
        await agent.play()
        return agent


def _close(settings: Settings, console: Console, agent: Agent, seconds: float) -> None:
    """Leaderboard, funnel, savings and paths, read from the book as an auditor would."""
    from kernelgate.budget import report

    with Ledger.open(settings.ledger) as ledger:
        leaders = report.leaderboard(ledger, agent.run_id)
        funnel = report.funnel(ledger, agent.run_id)
        saved = report.savings(ledger, agent.run_id)
    names = {candidate_id: name for name, candidate_id in agent.ids.items()}
    console.print()
    console.print(leaderboard_table(leaders, names))
    console.print(funnel_table(funnel))
    console.print(savings_sentence(saved))
    console.print(f"\nledger: {settings.ledger}\nlog:    {settings.log}\ntook {seconds:.1f} s")

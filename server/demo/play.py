"""Plays the script: a real MCP client over stdio, its live progress, and the closing tables."""

import sys
import time

import anyio
from mcp import Client, MCPError, StdioServerParameters
from rich.console import Console

from kernelgate.budget import report
from kernelgate.budget.ledger import Ledger
from kernelgate.server.demo.agent import Agent
from kernelgate.server.demo.script import GPU_IDEAS, TASK
from kernelgate.server.preflight import make_data_folder, require
from kernelgate.server.settings import Settings
from kernelgate.server.tables import Listing, funnel_table, leaderboard_table, savings_sentence
from kernelgate.server.trouble import Trouble, guarded, leaves
from kernelgate.server.views import row_of


def run_demo(settings: Settings) -> int:
    """Play the demo against a server of its own; exit status 0 if candidates were timed, also where none was faster."""

    def playing() -> int:
        require(settings)
        make_data_folder(settings)
        console = Console(soft_wrap=True, highlight=False)
        console.print("A scripted agent connects over stdio and optimises the row softmax.\n")
        started = time.perf_counter()
        agent = _played(settings, console)
        _close(settings, console, agent, time.perf_counter() - started)
        return 0 if agent.best is not None else _without_a_gain(settings, console, agent)

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


def _without_a_gain(settings: Settings, console: Console, agent: Agent) -> int:
    """Say why there is no winner; 1 only where nothing was timed at all."""
    with Ledger.open(settings.ledger) as ledger:
        leaders = report.leaderboard(ledger, agent.run_id, limit=1) if agent.run_id else ()
    if not leaders:
        console.print(f"\nNo candidate could be timed: the log says why, {settings.log}; see also `kernelgate doctor`.")
        return 1
    console.print(
        "\nNo candidate was proven faster than the baseline this time: on a busy or noisy host the intervals are too "
        f"wide for a claim, and kernelgate makes none. {leaders[0].candidate_id} came nearest. Run the demo again when "
        "the host is quiet."
    )
    return 0


def _close(settings: Settings, console: Console, agent: Agent, seconds: float) -> None:
    """Leaderboard, funnel, savings and paths, read from the book as an auditor would."""
    with Ledger.open(settings.ledger) as ledger:
        leaders = report.leaderboard(ledger, agent.run_id)
        funnel = report.funnel(ledger, agent.run_id)
        saved = report.savings(ledger, agent.run_id)
        tasks = tuple(_task_line(ledger, agent, task) for task in (TASK, *GPU_IDEAS))
    names = {candidate_id: name for name, candidate_id in agent.ids.items()}
    console.print()
    console.print(leaderboard_table(leaders, names))
    console.print(funnel_table(funnel))
    console.print(savings_sentence(saved))
    if len(agent.runs) > 1:
        console.print()
        columns = ("task", "speed-up", "interval", "rung", "verdict", "idea")
        console.print(Listing("Bundled tasks (baseline time / candidate time)", columns, tasks))
    console.print(f"\nledger: {settings.ledger}\nlog:    {settings.log}\ntook {seconds:.1f} s")


def _task_line(ledger: Ledger, agent: Agent, task: str) -> tuple[str, ...]:
    """A task with its best candidate, or the only one; the verdict is of the rung that it reached."""
    run_id = agent.runs.get(task)
    if run_id is None:
        return (task, "", "", "", "no run", "")
    records = ledger.candidates(run_id, order="best", limit=1)
    if not records:
        return (task, "", "", "", "no candidate", "")
    (record,) = records
    row = row_of(record, ledger.results(record.candidate_id), ledger.run(run_id), 0.0)
    idea = next((name for name, candidate_id in agent.ids.items() if candidate_id == record.candidate_id), "")
    if row.ratio is None or row.low is None or row.high is None or row.ratio_rung != row.furthest:
        return (task, "", "", row.furthest, row.verdict, idea)
    return (task, f"{row.ratio:.2f}x", f"{row.low:.2f}-{row.high:.2f}", row.furthest, row.verdict, idea)

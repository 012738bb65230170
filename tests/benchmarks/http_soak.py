"""Fifty agents at one HTTP server: does it lose a result, spend twice, or grow? Writes http_soak.json.

`python tests/benchmarks/http_soak.py [--minutes 10] [--agents 50]`, on the CPU device and the loopback address. The
agents are of five accounts. They submit right, wrong, slow and broken candidates, some twice, leave in the middle and
come back, and cancel. Behind the last one everything that a client was told is looked up in the book.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from measurement import plain_python_loop_ms, with_pace, write_measurement

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from http_server import HttpServer, call, client_of, serving
from live_server import forward

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.server.tokens import Tokens
from kernelgate.tools.worker import processes

ACCOUNTS: Final = 5
SAMPLE_S: Final = 5.0
BODIES: Final = (
    "return torch.softmax(x, dim=-1)",
    "return torch.softmax(x, dim=0)",
    "y = torch.exp(x - x.amax(-1, keepdim=True))\nreturn y / y.sum(-1, keepdim=True)",
    "raise RuntimeError('broken')",
    "return torch.softmax(x.double(), dim=-1).float()",
)
UP_TO: Final = ("compile",) * 4 + ("check_correctness",) * 3 + ("quick_time",)
"""A quick timing takes a CPU for more than a second, and all of them share one."""


@dataclass
class Told:
    """What all clients were told."""

    ended: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Job → its reply, by whoever fetched it."""
    answered: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Replies that came without a job."""
    counts: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    waited_s: list[float] = field(default_factory=list[float])
    resident_mb: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])


async def open_run(client: Any, told: Told) -> str:
    """A run of the account; another one when the purse is empty."""
    reply = await call(client, "start_run", task="softmax", rule="flat")
    told.counts["runs"] += 1
    return str(reply["run"]["run_id"])


async def one_candidate(client: Any, run_id: str, number: str, chance: random.Random, told: Told) -> tuple[str, str]:
    """Submit, wait a while, perhaps cancel; the job that is still open, if one is, and why nothing more is possible."""
    body = chance.choice(BODIES)
    source = forward(body) + ("" if chance.random() < 0.1 else f"# {number}\n")
    begun_s = time.monotonic()
    reply = await call(
        client, "compile", run_id=run_id, source=source, up_to=chance.choice(UP_TO), wait_s=chance.choice([0, 5, 40])
    )
    told.waited_s.append(time.monotonic() - begun_s)
    told.counts["calls"] += 1
    if "error" in reply:
        told.errors[reply["error"][:80]] += 1
        return "", reply["error"]
    if reply["status"] != "running":
        told.answered.append(reply)
        return "", "purse" if (reply.get("refusal") or {}).get("kind") in ("purse", "deadline") else ""
    job_id = str(reply["job_id"])
    if chance.random() < 0.1:
        await call(client, "job", job_id=job_id, action="cancel", wait_s=0)
        told.counts["cancels"] += 1
    return job_id, ""


async def fetch(client: Any, job_id: str, told: Told) -> bool:
    """Wait for a job; whether it has ended."""
    job = (await call(client, "job", job_id=job_id, wait_s=20)).get("job", {})
    if job.get("state") not in ("done", "cancelled"):
        return False
    told.ended[job_id] = job
    return True


async def agent(url: str, token: str, number: int, end_s: float, told: Told) -> None:
    """One agent until the end: clients come and go, its jobs stay."""
    chance, run_id, count, open_jobs = random.Random(number), "", 0, list[str]()
    while time.monotonic() < end_s or open_jobs:
        async with client_of(url, token, chance.choice(["auto", "legacy"])) as client:
            told.counts["connections"] += 1
            for _ in range(chance.randint(1, 5)):
                if time.monotonic() >= end_s and not open_jobs:
                    return
                run_id = run_id or await open_run(client, told)
                if time.monotonic() < end_s and len(open_jobs) < 2:
                    count += 1
                    job_id, why = await one_candidate(client, run_id, f"{number}.{count}", chance, told)
                    open_jobs += [job_id] if job_id else []
                    run_id = "" if why == "purse" else run_id
                elif open_jobs and await fetch(client, open_jobs[0], told):
                    open_jobs.pop(0)


async def watch(server: HttpServer, end_s: float, told: Told) -> None:
    """Resident memory of the server and all below it."""
    begun_s = time.monotonic()
    while time.monotonic() < end_s:
        await anyio.sleep(SAMPLE_S)
        pid = server.process.pid
        told.resident_mb.append((time.monotonic() - begun_s, resident_mb(pid)))


def resident_mb(pid: int) -> float:
    """Of a process alone: those below it come and go with candidates."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def looked_up(folder: Path, told: Told) -> dict[str, int | float]:
    """What the book says of everything that clients were told."""
    with Ledger.open(folder / "ledger.db") as ledger:
        jobs = {row["job_id"]: row for row in ledger.query("SELECT job_id, state, result_json FROM jobs")}
        lost = [job for job, seen in told.ended.items() if jobs.get(job, {}).get("state") != seen["state"]]
        still = [job for job, row in jobs.items() if row["state"] in ("queued", "running", "lost")]
        (twice,) = ledger.query(
            "SELECT COUNT(*) AS n FROM (SELECT hold_seq FROM events WHERE kind IN ('settle', 'release')"
            " AND hold_seq NOT NULL GROUP BY hold_seq HAVING COUNT(*) > 1)"
        )
        (results,) = ledger.query("SELECT COUNT(*) AS n FROM results")
        (holds,) = ledger.query("SELECT COUNT(*) AS n FROM events WHERE kind = 'hold'")
        accounts = ledger.query("SELECT COUNT(DISTINCT account_id) AS n FROM runs")[0]["n"]
    report = audit(folder / "ledger.db")
    return {
        "jobs": len(jobs), "jobs_fetched": len(told.ended), "results": results["n"], "holds": holds["n"],
        "accounts": accounts, "told_otherwise_than_booked": len(lost), "left_open": len(still),
        "settled_twice": twice["n"], "audit_findings": len(report.findings),
    }  # fmt: skip


async def soak(folder: Path, minutes: float, agents: int) -> tuple[Told, dict[str, int | float]]:
    """All agents at once, then the look into the book once the server has left."""
    told = Told()
    with serving(folder) as server:
        tokens = [Tokens(folder).add(f"fleet{number}", server.url)[1] for number in range(ACCOUNTS)]
        end_s = time.monotonic() + minutes * 60
        async with anyio.create_task_group() as group:
            group.start_soon(watch, server, end_s, told)
            for number in range(agents):
                group.start_soon(agent, server.url, tokens[number % ACCOUNTS], number, end_s, told)
        below = processes.descendants(server.process.pid)
        status = server.leave()
        orphans = [pid for pid in below if os.path.exists(f"/proc/{pid}")]  # noqa: ASYNC240  nothing else runs now
    return told, {"exit_status": status, "orphans": len(orphans), **looked_up(folder, told)}


def main() -> None:
    """Soak and write; ends with 1 where something was lost."""
    parser = argparse.ArgumentParser(description="Many agents at one HTTP server.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--agents", type=int, default=50)
    options = parser.parse_args()
    before_ms = plain_python_loop_ms()
    with tempfile.TemporaryDirectory(prefix="kernelgate-soak-") as scratch:
        told, found = anyio.run(soak, Path(scratch), options.minutes, options.agents)
    memory = [mb for _, mb in told.resident_mb]
    third = max(1, len(memory) // 3)
    figures: dict[str, int | float] = {
        "minutes": options.minutes, "agents": options.agents, **found,
        "calls": told.counts["calls"], "connections": told.counts["connections"], "cancels": told.counts["cancels"],
        "errors_told": sum(told.errors.values()),
        "call_s_median": round(statistics.median(told.waited_s), 4), "call_s_max": round(max(told.waited_s), 2),
        "server_rss_mb_second_third": round(statistics.median(memory[third : 2 * third] or memory), 1),
        "server_rss_mb_last_third": round(statistics.median(memory[-third:]), 1),
    }  # fmt: skip
    raw: dict[str, Any] = {"errors": dict(told.errors), "server_rss_mb": memory}
    write_measurement("http_soak", *with_pace(figures, raw, before_ms))
    sys.stdout.write(f"{figures}\n{dict(told.errors)}\n")
    wrong = ("told_otherwise_than_booked", "left_open", "settled_twice", "audit_findings", "orphans", "exit_status")
    if any(found[name] for name in wrong):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

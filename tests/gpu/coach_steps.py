"""What the parts of `coach_run.py` share: a candidate up to its profile, and what that said and took."""

import json
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from kernelbench_run import finished
from one_fault_tasks import FaultTask
from stdio_server import StdioServer

DEPTH: Final = "counters"
STEP_S: Final = 6.0
"""No step begins with less left: a kernel's takes half of that."""
FAILURES: Final = (RuntimeError, OSError, KeyError, json.JSONDecodeError)
"""What a step may raise that is written down."""


def lay_out(tasks: Iterable[FaultTask], folder: Path) -> None:
    """Write tasks where a server finds them with `--tasks`."""
    for task in tasks:
        place = folder / task.name
        place.mkdir(parents=True, exist_ok=True)
        for name, text in task.files.items():
            (place / name).write_text(text, encoding="utf-8")


def takes_depth(server: StdioServer) -> bool:
    """Whether this version's profile has depths."""
    tools = server.ask("tools/list")["tools"]
    (profile,) = (tool for tool in tools if tool["name"] == "profile")
    return "depth" in profile["inputSchema"]["properties"]


def profiled(
    server: StdioServer, run_id: str, source: str, depth: str, beside: AbstractContextManager[str] | None = None
) -> dict[str, Any]:
    """A source up to its quick verdict, and its profile: what they said and took.

    Args:
        server: greeted.
        run_id: of a run on the candidate's task.
        source: the candidate.
        depth: empty for a version without depths.
        beside: what goes on while it is profiled, and says so.
    """
    began_s = time.perf_counter()
    quick = finished(server, server.call("compile", run_id=run_id, source=source, up_to="quick_time", wait_s=200))
    told: dict[str, Any] = {"source_to_quick_s": round(time.perf_counter() - began_s, 4)}
    told |= {"quick": {name: quick.get(name) for name in ("status", "verdict", "summary", "last_report")}}
    if quick["status"] != "ok" or quick.get("rung") != "quick":
        return told
    arguments = {"candidate_id": quick["candidate_id"], "wait_s": 100} | ({"depth": depth} if depth else {})
    with beside or nullcontext("") as meanwhile:
        began_s = time.perf_counter()
        reply = finished(server, server.call("profile", **arguments))
        wall_s = time.perf_counter() - began_s
    report = reply.get("report") or {}
    told["profile"] = {
        "status": reply["status"], "verdict": reply.get("verdict"), "summary": reply.get("summary"),
        "bound_class": report.get("bound_class"), "findings": report.get("findings") or [],
        "lease_s": (reply.get("cost") or {}).get("charged_s"), "wall_s": round(wall_s, 4),
        "tokens": len(json.dumps(reply, ensure_ascii=False)) // 4, "refusal": reply.get("refusal"), "report": report,
        "missing": report.get("missing", ""), "beside": meanwhile,
    }  # fmt: skip
    return told


def line_of(told: dict[str, Any]) -> str:
    """What one step showed, in short."""
    if "profile" not in told:
        return told.get("error") or f"{told['quick']['verdict']}: {told['quick']['summary']}"
    profile = told["profile"]
    kinds = ", ".join(f"{one['kind']} {one['headroom']:.1f}x" for one in profile["findings"]) or profile["verdict"]
    evidence = profile["findings"][0]["evidence"] if profile["findings"] else profile["summary"]
    return f"{kinds}; lease {profile['lease_s']} s, wall {profile['wall_s']} s; {evidence}"

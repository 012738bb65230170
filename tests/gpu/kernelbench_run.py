"""Ten problems of a KernelBench checkout at their original shapes, through all rungs, with our own Triton candidates.

`python tests/gpu/kernelbench_run.py CHECKOUT OUT.json [PROBLEM …]` on a GPU host. Of some problems further new sources
go up to quick, for a median. A problem whose tolerance lets a
mutant pass is refused by its qualification, which is a right answer too and recorded as such.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from kernelbench_candidates import SOURCES
from stdio_server import StdioServer, stdio_server


def finished(server: StdioServer, reply: dict[str, Any]) -> dict[str, Any]:
    """The reply of a call, waited for if it became a job."""
    while reply.get("status") == "running":
        reply = server.call("job", job_id=reply["job_id"], wait_s=60)["job"].get("reply", reply)
    return reply


REPEATED = ("1_Square_matrix_multiplication_", "19_ReLU", "36_RMSNorm_")
AGAIN = 4
"""Further sources of these, each new to the book."""


def up_to_quick(server: StdioServer, run_id: str, source: str) -> dict[str, Any]:
    """A new candidate from source to quick verdict: the reply, and the seconds that a client waited."""
    began_s = time.perf_counter()
    reply = finished(server, server.call("compile", run_id=run_id, source=source, up_to="quick_time", wait_s=300))
    return {**reply, "source_to_quick_s": time.perf_counter() - began_s}


def charged_s(reply: dict[str, Any]) -> float:
    """GPU seconds of check and quick."""
    return float(sum(step["charged_s"] for step in reply["climbed"] if step["rung"] in ("check", "quick")))


def climb(server: StdioServer, problem: str, source: str) -> dict[str, Any]:
    """One problem: run, compile to quick, precise, profile; what each said and took."""
    found: dict[str, Any] = {"problem": problem}
    began_s = time.perf_counter()
    try:
        run = server.call("start_run", task=f"kernelbench/level1/{problem}")["run"]
    except RuntimeError as error:
        return {**found, "refused": str(error), "start_run_s": time.perf_counter() - began_s}
    found["start_run_s"] = time.perf_counter() - began_s
    reply = up_to_quick(server, run["run_id"], source)
    found |= {
        "source_to_quick_s": reply["source_to_quick_s"],
        "climbed": reply.get("climbed", []),
        "quick": {"status": reply["status"], "verdict": reply.get("verdict"), "summary": reply["summary"]},
        "cost": reply.get("cost"),
    }
    if reply["status"] != "ok":
        return found
    arguments = {"candidate_id": reply["candidate_id"], "wait_s": 300}
    began_s = time.perf_counter()
    reason = "to have a precise answer for this problem"
    precise = finished(server, server.call("precise_time", override_reason=reason, **arguments))
    found["precise_s"] = time.perf_counter() - began_s
    found["precise"] = {key: precise.get(key) for key in ("status", "verdict", "summary", "cost", "report")}
    if problem in REPEATED:
        replies = [up_to_quick(server, run["run_id"], f"{source}\n# {number}\n") for number in range(1, AGAIN + 1)]
        found["again"] = [
            {"source_to_quick_s": one["source_to_quick_s"], "charged_s": charged_s(one), "verdict": one.get("verdict")}
            for one in replies
        ]
    profile = finished(server, server.call("profile", **arguments))
    found["profile"] = {key: profile.get(key) for key in ("status", "verdict", "summary", "cost")}
    return found


def main(checkout: str, out: str, *problems: str) -> None:
    """Run and write."""
    chosen = problems or tuple(SOURCES)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        more = ("--kernelbench", checkout)
        with stdio_server(Path(scratch), device="cuda:0", more=more) as server:
            server.greet()
            for problem in chosen:
                try:
                    results.append(climb(server, problem, SOURCES[problem]))
                except (RuntimeError, OSError, KeyError) as error:
                    results.append({"problem": problem, "error": f"{type(error).__name__}: {error}"})
                Path(out).write_text(json.dumps(results, indent=1), encoding="utf-8")
                last = results[-1]
                said = last.get("precise") or last.get("quick") or last.get("refused") or last.get("error")
                sys.stdout.write(f"{problem}: {last.get('source_to_quick_s', 0.0):.2f} s, {str(said)[:300]}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

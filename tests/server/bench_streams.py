"""A small task, streams for it, and a client that answers as a server would: for the tests of `bench ladder`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from live_server import forward
from mcp.types import CallToolResult, TextContent

from kernelgate.budget.ladder.model import FLAT, Line, Stream
from kernelgate.server.bench.live import Pass, Player

REFERENCE = """import torch

ROWS, COLS = 64, 512


class Model(torch.nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        for _ in range(5):
            y = y + torch.softmax(x, -1)
        return y / 6


def get_inputs():
    return [torch.rand(ROWS, COLS)]


def get_init_inputs():
    return []
"""
TASK_FILE = 'distributions = ["normal", "uniform"]\n[[workload]]\nname = "one"\n'
SOURCES = {
    "typo": "class ModelNew(\n",
    "wrong": forward("return torch.softmax(x, 0)"),
    "fused": forward("return torch.softmax(x, -1)"),
    "again": forward("return torch.softmax(x, -1)"),
    "slow": forward("return sum(torch.softmax(x, -1) for _ in range(24)) / 24"),
}
PARENTS = {"wrong": "typo", "fused": "wrong", "again": "fused", "slow": "fused"}


def tasks(folder: Path) -> Path:
    """A folder of tasks with the one task `sums`."""
    (folder / "sums").mkdir(parents=True)
    (folder / "sums" / "reference.py").write_text(REFERENCE)
    (folder / "sums" / "task.toml").write_text(TASK_FILE)
    return folder


def stream(folder: Path, name: str = "sums", sources: Mapping[str, str] = SOURCES) -> Path:
    """A stream of these sources, each the child of the one that `PARENTS` says."""
    parents = {each: PARENTS[each] for each in sources if PARENTS.get(each) in sources}
    lines = [
        json.dumps({"id": each, "parent": parents.get(each), "source": source}) for each, source in sources.items()
    ]  # fmt: skip
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


class ScriptedClient:
    """Answers each rung from a function (id of the source's line, tool) → the reply's own part."""

    def __init__(self, answer: Callable[[str, str], dict[str, Any]]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.ids: dict[str, str] = {}

    async def call_tool(self, tool: str, arguments: dict[str, Any], **_: Any) -> CallToolResult:
        self.asked.append((tool, arguments))
        if tool == "start_run":
            run = {"run_id": "r1", "rule": arguments["rule"], "device_unit": "cpu_s", "environment": {"name": "a CPU"}}
            return CallToolResult(content=[], structured_content={"status": "ok", "summary": "", "run": run})
        if tool == "compile":
            self.ids[f"c{len(self.ids) + 1}"] = arguments["note"]
            candidate = f"c{len(self.ids)}"
        else:
            candidate = arguments["candidate_id"]
        reply = {"candidate_id": candidate, "summary": "", "cost": {"charged_s": 1.0}, "replayed": False}
        reply |= self.answer(self.ids[candidate], tool)
        if "error" in reply:
            return CallToolResult(content=[TextContent(type="text", text=reply["error"])], is_error=True)
        return CallToolResult(content=[], structured_content=reply)


def went(verdict: str, ratio: float | None = None) -> dict[str, Any]:
    """A rung that was measured; the interval is 2 % wide."""
    report = {} if ratio is None else {"report": {"ratio": ratio, "low": ratio * 0.99, "high": ratio * 1.01}}
    return {"status": "ok", "verdict": verdict, **report}


def refusal(kind: str) -> dict[str, Any]:
    return {"status": "refused", "refusal": {"kind": kind, "why": f"No: {kind}.", "missing": "More."}}


QUICK = {"a": 1.1, "b": 1.5, "c": 1.2}
PRECISE = {"a": 1.12, "b": 1.48, "c": 1.6}
STREAM = Stream(
    name="s", task="t", lines=tuple(Line(id=name, source=f"{name} = 1", note=name, parent=None) for name in QUICK)
)  # fmt: skip
ALONE = {"compile": went("built"), "check_correctness": went("correct")}


def well(name: str, tool: str) -> dict[str, Any]:
    """All pass all rungs."""
    if tool == "quick_time":
        return went("maybe_faster", QUICK[name])
    return ALONE.get(tool) or went("faster", PRECISE[name])


def played(answer: Any, rule: str = FLAT, stream: Stream = STREAM, budget: float | None = None) -> tuple[Pass, Any]:
    client = ScriptedClient(answer)
    player = Player(client, stream, rule)  # type: ignore[arg-type]  # a client as far as it is used

    async def playing() -> None:
        await player.play(budget, lambda *_: None)

    anyio.run(playing)
    seen = player.seen()
    assert seen is not None
    return seen, client

"""A scripted agent without a model: it mutates a parametrised Triton softmax at random and keeps what is better.

`python examples/mutate_triton.py --count 12 --seed 1 -- --data FOLDER`; what follows `--` goes to `kernelgate serve`.
On a GPU candidates are ranked by their quick timing, and the best is timed precisely. Without one Triton cannot be
timed: there they are checked in Triton's interpreter, and ranked by what the compiler says of them for a GPU.
`--stream FILE` keeps what was tried, one JSON object a line: the same candidates for another rule or another day.
"""

import argparse
import json
import random
import sys
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

from mcp import Client
from session import call, parted, play

SPACE = {"BLOCK": (256, 512, 1024, 2048, 4096, 8192), "WARPS": (1, 2, 4, 8, 16), "STAGES": (1, 2, 3, 4)}
SOURCE = Template("""
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x_ptr, y_ptr, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    top = -float("inf")
    total = 0.0
    for start in tl.range(0, columns, BLOCK, num_stages=STAGES):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + first + at, mask=at < columns, other=-float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    for start in tl.range(0, columns, BLOCK, num_stages=STAGES):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + first + at, mask=at < columns, other=-float("inf"))
        tl.store(y_ptr + first + at, tl.exp(x - top) / total, mask=at < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        softmax_rows[(rows,)](x, y, columns, BLOCK=$BLOCK, STAGES=$STAGES, num_warps=$WARPS)
        return y
""")

Genes = dict[str, int]


def source_of(genes: Genes) -> str:
    """The kernel with these parameters."""
    return SOURCE.substitute(genes)


def mutated(genes: Genes, tried: list[Genes], dice: random.Random) -> Genes | None:
    """The same with one parameter changed, such as was not tried yet; None where all were."""
    children = [{**genes, name: value} for name, values in SPACE.items() for value in values]
    return dice.choice([child for child in children if child not in tried] or [None])


def score_of(reply: dict[str, Any]) -> tuple[float, ...]:
    """Higher is better: the quick ratio; where nothing can be timed spills, occupancy and registers decide."""
    kernels = reply.get("report", {}).get("kernels")
    if reply["status"] == "failed" or not kernels:
        return (-1.0,)
    binary = kernels[0]
    spills, share = binary["kernel"].get("spill_bytes", 0), binary.get("occupancy", {}).get("share", 0.0)
    return (reply.get("last_report", {}).get("ratio", 0.0), -spills, share, -binary["kernel"]["registers"])


def line_of(name: str, sent: dict[str, Any]) -> str:
    """A candidate as a line of a stream."""
    parent = {"parent": sent["parent_id"]} if "parent_id" in sent else {}
    return json.dumps({"id": name, **parent, "source": sent["source"], "note": sent["note"]}) + "\n"


async def climb(count: int, seed: int, stream: Path | None, client: Client) -> None:
    """Climb from one random kernel, a mutation at a time."""
    dice = random.Random(seed)
    run = (await call(client, "start_run", task="softmax"))["run"]
    rung = "check_correctness" if run["device"] == "cpu" else "quick_time"
    genes: Genes | None = {name: dice.choice(values) for name, values in SPACE.items()}
    tried: list[Genes] = []
    best: tuple[tuple[float, ...], Genes, str] = ((-2.0,), {}, "")
    while genes is not None and len(tried) < count:
        tried.append(genes)
        changed = " ".join(f"{name}={value}" for name, value in genes.items() if best[1].get(name) != value)
        sent = {"run_id": run["run_id"], "source": source_of(genes), "note": f"try {changed}", "up_to": rung}
        if best[2]:
            sent["parent_id"] = best[2]
        reply = await call(client, "compile", **sent)
        score, name = score_of(reply), reply["candidate_id"]
        if stream is not None:
            with stream.open("a" if len(tried) > 1 else "w", encoding="utf-8") as file:
                file.write(line_of(name, sent))
        print(f"{name:4} {changed:32} (ratio, -spills, occupancy, -registers) = {score}; {reply['summary']}")
        best = max(best, (score, genes, name), key=lambda one: one[0])
        genes = mutated(best[1], tried, dice)
    print(f"best of run {run['run_id']} on {run['device']}: {best[2]} {best[1]}")
    if best[0][0] > 0:
        print((await call(client, "precise_time", candidate_id=best[2]))["summary"])


if __name__ == "__main__":
    own, serve = parted(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=12, help="kernels to try (12)")
    parser.add_argument("--seed", type=int, default=0, help="of its dice (0)")
    parser.add_argument("--stream", type=Path, help="write what was tried, as JSON lines")
    given = parser.parse_args(own)
    (given.stream or Path()).parent.mkdir(parents=True, exist_ok=True)  # before anything is spent
    play(partial(climb, given.count, given.seed, given.stream), serve)

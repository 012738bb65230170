"""What a whole server meets on a GPU host: several agents at once, inline CUDA, other people's processes, bad input.

`python tests/gpu/server_run.py OUT.json [STEP …]`. Each step is a real MCP client over stdio; one that fails is written
down and the next goes on.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parent))

import anyio
from gpu_calls import RELU, triton_softmax
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from kernelgate.budget.ledger import Ledger
from kernelgate.server.trouble import leaves

AGENTS = 4
CANDIDATES = 6
"""Of each agent."""
FOREIGN = (
    "import torch, time\n"
    "x = torch.rand(4096, 4096, device='cuda')\n"
    "print('here', flush=True)\n"
    "end = time.time() + 60\n"
    "while time.time() < end:\n"
    "    for _ in range(20): y = x @ x\n"
    "    torch.cuda.synchronize()\n"
)
LEFT_GIB = 39
"""Of free memory: too little for `wide`, which needs 38 of it with a margin, and enough beside that of `weights`."""
HOARDS = (
    "import torch, time\n"
    f"x = torch.empty(torch.cuda.mem_get_info()[0] - ({LEFT_GIB} << 30), dtype=torch.uint8, device='cuda')\n"
    "print('here', flush=True)\n"
    "time.sleep(90)\n"
)
INLINE = '''"""ReLU as inline CUDA. {number}"""
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
__global__ void relu(const float* x, float* y, long n) {{
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > 0 ? x[i] : 0{broken}
}}
torch::Tensor forward(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  long n = x.numel();
  relu<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}}
"""
module = load_inline("relu_inline", "torch::Tensor forward(torch::Tensor x);", SOURCE, functions=["forward"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.forward(x)
'''
OTHER_CARD = "-gencode=arch=compute_80,code=sm_80"
DIAGONAL = """import torch


class Model(torch.nn.Module):
    def forward(self, scale, x):
        return torch.diag(scale) @ x


def get_inputs():
    return [torch.rand(4096), torch.rand(4096, 4096)]


def get_init_inputs():
    return []
"""
SCALED_ROWS = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, scale, x):
        return scale[:, None] * x
"""
CHAIN = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(4096))
        self.shift = torch.nn.Parameter(torch.rand(4096))

    def forward(self, x):
        return torch.nn.functional.gelu(x * self.scale + self.shift, approximate="tanh") * 2


def get_inputs():
    return [torch.rand(4096, 4096)]


def get_init_inputs():
    return []
"""
FEWER = """import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(4096))
        self.shift = torch.nn.Parameter(torch.rand(4096))

    def forward(self, x):
        y = torch.addcmul(self.shift, x, self.scale)
        return torch.nn.functional.gelu(y, approximate="tanh").mul_(2)  # {number}
"""
WEIGHTS = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(1 << 19, 6600))

    def forward(self, x):
        return x * self.weight[:4096]


def get_inputs():
    return [torch.rand(4096, 6600)]


def get_init_inputs():
    return []
"""
CLAMP = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=0)
"""
MEMORY_USED = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0")
SMALL_RELU = RELU.replace("4096, 393216", "4096, 8192")


def server(folder: Path, *more: str, device: str = "cuda:0") -> StdioServerParameters:
    command = ["-m", "kernelgate.server", "serve", "--data", str(folder), "--device", device, *more]
    return StdioServerParameters(command=sys.executable, args=command)


def structure_of(result: CallToolResult) -> dict[str, Any]:
    if result.is_error:
        return {"error": "".join(part.text for part in result.content if isinstance(part, TextContent))}
    return cast("dict[str, Any]", result.structured_content)


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tool call, waited for if it became a job."""
    reply = structure_of(await client.call_tool(tool, arguments))
    while reply.get("status") == "running":
        waited = structure_of(await client.call_tool("job", {"job_id": reply["job_id"], "wait_s": 50}))
        reply = waited["job"].get("reply", reply)
    return reply


async def run_of(client: Client, task: str) -> str:
    started = await call(client, "start_run", task=task, rule="flat")
    if "error" in started:
        raise RuntimeError(started["error"])
    return str(started["run"]["run_id"])


async def climb(client: Client, run_id: str, source: str, up_to: str) -> dict[str, Any]:
    began_s = time.perf_counter()
    reply = await call(client, "compile", run_id=run_id, source=source, up_to=up_to, wait_s=200)
    seconds = time.perf_counter() - began_s
    kept = ("status", "verdict", "summary", "error", "cost", "climbed")
    return {"seconds": round(seconds, 4), **{name: reply[name] for name in kept if name in reply}}


async def agents(folder: Path) -> dict[str, Any]:
    """Several agents on one server, each with candidates of its own: how much of the time is the lease held?"""
    climbs: list[dict[str, Any]] = []

    async def agent(client: Client, number: int, run_id: str) -> None:
        for count in range(CANDIDATES):
            climbed = await climb(client, run_id, triton_softmax(1000 * number + count), "quick_time")
            climbs.append({"agent": number, **climbed})

    async with Client(server(folder)) as client:
        run_id = await run_of(client, "softmax")
        await climb(client, run_id, triton_softmax(7), "quick_time")
        alone_s = [(await climb(client, run_id, triton_softmax(8 + n), "quick_time"))["seconds"] for n in range(3)]
        began_s = time.perf_counter()
        async with anyio.create_task_group() as group:
            for number in range(1, AGENTS + 1):
                group.start_soon(agent, client, number, run_id)
        wall_s = time.perf_counter() - began_s
    with Ledger.open(folder / "ledger.db") as ledger:
        query = "SELECT gpu_s, house_s FROM results WHERE rung IN ('check', 'quick') ORDER BY event_seq"
        rows = [dict(row) for row in ledger.query(query)][-2 * AGENTS * CANDIDATES :]
    busy_s = sum(row["gpu_s"] + row["house_s"] for row in rows)
    return {
        "agents": AGENTS, "candidates": len(climbs), "wall_s": wall_s, "lease_s": busy_s, "busy_share": busy_s / wall_s,
        "alone_source_to_quick_s": alone_s, "source_to_quick_s": [one["seconds"] for one in climbs],
        "verdicts": sorted({str(one.get("verdict")) for one in climbs}),
        "not_timed": [one for one in climbs if one.get("verdict") is None],
    }  # fmt: skip


async def inline_cuda(folder: Path) -> dict[str, Any]:
    """`load_inline`: built once without the lease, then checked and timed; an error of the compiler is told."""
    (folder / "tasks").mkdir()
    (folder / "tasks" / "relu_small.py").write_text(SMALL_RELU)
    async with Client(server(folder, "--tasks", str(folder / "tasks"))) as client:
        run_id = await run_of(client, "relu_small")
        good = INLINE.format(number=1, broken=";")
        first = await climb(client, run_id, good, "quick_time")
        other = await climb(client, await run_of(client, "relu_small"), good, "quick_time")
        broken = await climb(client, run_id, INLINE.format(number=2, broken=""), "quick_time")
        again = await climb(client, run_id, INLINE.format(number=2, broken=""), "quick_time")
        elsewhere = good.replace('functions=["forward"]', f'functions=["forward"], extra_cuda_cflags=["{OTHER_CARD}"]')
        wrong = await climb(client, run_id, elsewhere, "quick_time")
    return {
        "first": first, "again_in_another_run": other, "broken": broken, "broken_again": again,
        "for_another_architecture": wrong,
    }  # fmt: skip


async def foreign(folder: Path) -> dict[str, Any]:
    """Somebody else computes on the card meanwhile."""
    async with Client(server(folder)) as client:
        run_id = await run_of(client, "softmax")
        before = await climb(client, run_id, triton_softmax(1), "quick_time")
        async with await anyio.open_process([sys.executable, "-c", FOREIGN]) as process:
            assert process.stdout is not None
            await process.stdout.receive()
            during = await climb(client, run_id, triton_softmax(2), "precise_time")
            process.kill()
        after = await climb(client, run_id, triton_softmax(3), "quick_time")
    return {"before": before, "during": during, "after": after}


async def two_servers(folder: Path) -> dict[str, Any]:
    """Two servers with books of their own share the card by its lease."""
    found: dict[str, Any] = {}

    async def one(name: str) -> None:
        (folder / name).mkdir()
        async with Client(server(folder / name)) as client:
            run_id = await run_of(client, "softmax")
            found[name] = [await climb(client, run_id, triton_softmax(n), "precise_time") for n in range(3)]

    async with anyio.create_task_group() as group:
        for name in ("one", "other"):
            group.start_soon(one, name)
    return found


async def bad_input(folder: Path) -> dict[str, Any]:
    """What is refused with a sentence: no such card, a task that does not fit, a reference that runs out of memory."""
    found: dict[str, Any] = {}
    command = [sys.executable, "-m", "kernelgate.server", "serve", "--data", str(folder / "none"), "--device", "cuda:9"]
    done = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False)
    found["cuda:9"] = {"code": done.returncode, "said": done.stderr.decode()[-500:]}
    (folder / "tasks").mkdir()
    (folder / "tasks" / "huge.py").write_text(RELU.replace("4096, 393216", "65536, 524288"))
    hungry = SMALL_RELU.replace(
        "return torch.relu(x)", "return torch.relu(torch.ones(1 << 38, device=x.device)[:1] * x)"
    )
    (folder / "tasks" / "hungry.py").write_text(hungry)
    async with Client(server(folder, "--tasks", str(folder / "tasks"))) as client:
        for task in ("huge", "hungry"):
            found[task] = (await call(client, "start_run", task=task)).get("error", "it was started")
        run_id = await run_of(client, "softmax")
        found["after"] = await climb(client, run_id, triton_softmax(1), "quick_time")
    return found


async def crowded(folder: Path) -> dict[str, Any]:
    """A task of one server leaves too little memory for a task of another: somebody else has most of the card."""
    for name, source in (("weights", WEIGHTS), ("wide", RELU)):
        (folder / name / "tasks").mkdir(parents=True)
        (folder / name / "tasks" / f"{name}.py").write_text(source)
    found: dict[str, Any] = {}
    async with contextlib.AsyncExitStack() as stack:

        async def play(name: str, candidate: str) -> None:
            command = server(folder / name, "--tasks", str(folder / name / "tasks"))
            client = await stack.enter_async_context(Client(command))
            began_s = time.perf_counter()
            run_id = await run_of(client, name)
            found[name] = {"start_s": time.perf_counter() - began_s}
            found[name] |= await climb(client, run_id, candidate, "check_correctness")
            found[name]["memory_used_mib"] = await used_mib()

        await play("weights", WEIGHTS.replace("class Model", "class ModelNew"))
        async with await anyio.open_process([sys.executable, "-c", HOARDS]) as hoarder:
            assert hoarder.stdout is not None
            await hoarder.stdout.receive()
            found["crowded_mib"] = await used_mib()
            await play("wide", CLAMP)
            hoarder.kill()
    return found


async def used_mib() -> int:
    return int((await anyio.run_process(MEMORY_USED)).stdout.split()[0])


async def over_ten(folder: Path) -> dict[str, Any]:
    """Honest algebra, over ten times faster than a reference that multiplies by a diagonal matrix: checked harder."""
    (folder / "tasks").mkdir()
    (folder / "tasks" / "diagonal.py").write_text(DIAGONAL)
    async with Client(server(folder, "--tasks", str(folder / "tasks"))) as client:
        run_id = await run_of(client, "diagonal")
        return {"climb": await climb(client, run_id, SCALED_ROWS, "precise_time")}


async def other_baselines(folder: Path) -> dict[str, Any]:
    """A task that asks for torch.compile and a CUDA graph too: both are timed once, candidates told against them."""
    (folder / "tasks/chain").mkdir(parents=True)
    (folder / "tasks/chain/reference.py").write_text(CHAIN)
    (folder / "tasks/chain/task.toml").write_text('baselines = ["eager", "compile", "cuda_graph"]\n')
    async with Client(server(folder, "--tasks", str(folder / "tasks"))) as client:
        run_id = await run_of(client, "chain")
        found = [await climb(client, run_id, FEWER.format(number=number), "precise_time") for number in range(2)]
    with Ledger.open(folder / "ledger.db") as ledger:
        kept = ledger.query("SELECT kind, facts_json, gpu_s FROM calibrations WHERE kind LIKE 'baseline%'")
    return {"climbs": found, "calibrations": kept}


async def two_cards(folder: Path) -> dict[str, Any]:
    """Two runs of one server at once, each on a card of its own."""
    found: dict[str, Any] = {}

    async def one(client: Client, device: str) -> None:
        started = await call(client, "start_run", task="softmax", rule="flat", device=device)
        run_id = started["run"]["run_id"]
        climbs = [await climb(client, run_id, triton_softmax(n), "precise_time") for n in range(3)]
        found[device] = {"run": started["run"], "climbs": climbs}

    async with Client(server(folder)) as client, anyio.create_task_group() as group:
        for device in ("cuda:0", "cuda:1"):
            group.start_soon(one, client, device)
    return found


STEPS: dict[str, Callable[[Path], Awaitable[dict[str, Any]]]] = {
    "agents": agents,
    "inline_cuda": inline_cuda,
    "foreign": foreign,
    "two_servers": two_servers,
    "bad_input": bad_input,
    "crowded": crowded,
    "over_ten": over_ten,
    "other_baselines": other_baselines,
    "two_cards": two_cards,
}


def main(out: str, *chosen: str) -> None:
    """Run and write."""
    found: dict[str, Any] = {}
    for name in chosen or [name for name in STEPS if name != "two_cards"]:
        with tempfile.TemporaryDirectory(prefix="kernelgate-run-") as scratch:
            began_s = time.perf_counter()
            try:
                found[name] = {"ok": True, **anyio.run(STEPS[name], Path(scratch))}
            except Exception as error:  # noqa: BLE001  written down; the next step goes on
                said = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
                found[name] = {"ok": False, "error": said[:2000]}
            found[name]["step_s"] = round(time.perf_counter() - began_s, 2)
        Path(out).write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
        sys.stdout.write(f"{name}: {json.dumps(found[name], default=str)[:1500]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""All of the GPU side on one host, from small to large: `python tests/gpu/gpu_host.py --out DIR`.

Each step has a time limit of its own; one that fails is written down with its traceback and the next goes on. Prints
what it does and writes `DIR/gpu_host.json` after each step. `--only NAME` (may be repeated) runs some steps only.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpu_calls import (
    COMPILED,
    HOGS,
    HOSTILE,
    RELU_CANDIDATE,
    ROOT,
    Gpu,
    autotuned_softmax,
    bundled,
    first_gpu,
    forward,
    known_good,
    large_task,
    triton_softmax,
)

PARTS = Path(__file__).with_name("gpu_parts.py")
FUSED = forward("return torch.softmax(x, -1)")
NEW_CANDIDATES = 5


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)  # noqa: T201  the progress of this program


class TooLong(Exception):
    """A step took longer than its limit."""


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooLong(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    outer_s = signal.alarm(seconds)
    began_s = time.monotonic()
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        if outer_s:
            signal.alarm(max(1, outer_s - int(time.monotonic() - began_s)))


class Host:
    """What the steps share: a supervisor that is started when it is first needed."""

    def __init__(self) -> None:
        self._gpu: Gpu | None = None

    @property
    def gpu(self) -> Gpu:
        if self._gpu is None:
            device = first_gpu()
            if device is None:
                raise RuntimeError("nvidia-smi lists no GPU")
            self._gpu = Gpu(device)
        return self._gpu

    def renew(self) -> None:
        """After a step that ran too long: its supervisor may still be at work."""
        opened, self._gpu = self._gpu, None
        if opened is not None:
            opened.close()


def numbers(reply: Any) -> dict[str, Any]:
    """What a call cost."""
    names = ("lease_s", "house_s", "prepare_s", "queue_s", "wall_s")
    return {name: round(getattr(reply, name), 4) for name in names} | {
        "exit": reply.exit.kind, "observation": reply.observation,
    }  # fmt: skip


def run_and_judge(host: Host, procedure: str, task: Any, source: str, **more: Any) -> dict[str, Any]:
    begun = time.perf_counter()
    reply_report: dict[str, Any] = {}
    try:
        report, reply = host.gpu.judged(procedure, task, source, **more)
    except RuntimeError as error:
        return {"fault": str(error), "s": time.perf_counter() - begun}
    reply_report["s"] = round(time.perf_counter() - begun, 4)
    reply_report["verdict"], reply_report["code"] = str(report.verdict), report.code
    reply_report["summary"] = report.summary
    reply_report["report"] = report.model_dump(mode="json")
    reply_report["cost"] = numbers(reply)
    if reply.log.strip():
        reply_report["log"] = reply.log[-1500:]
    say(
        f"    {procedure}: {report.verdict} in {reply_report['s']:.3f} s, lease {reply.lease_s:.3f} s: {report.summary}"
    )
    return reply_report


def environment(host: Host) -> dict[str, Any]:
    del host
    code = (
        "import json, sys, torch, triton, importlib.metadata as m\n"
        "from contextlib import suppress\n"
        "found = {}\n"
        "for name in ('numpy', 'mcp', 'pydantic', 'anyio', 'sqlite-utils', 'nvidia-ml-py', 'pytest'):\n"
        "    found[name] = 'absent'\n"
        "    with suppress(m.PackageNotFoundError): found[name] = m.version(name)\n"
        "p = torch.cuda.get_device_properties(0)\n"
        "print(json.dumps({'python': sys.version, 'torch': torch.__version__, 'triton': triton.__version__,\n"
        "  'cuda': torch.version.cuda, 'device': p.name, 'memory': p.total_memory, 'l2': p.L2_cache_size,\n"
        "  'multiprocessors': p.multi_processor_count, 'packages': found}))\n"
    )
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    found: dict[str, Any] = {"import_and_context_s": time.perf_counter() - begun}
    if done.returncode == 0:
        found |= json.loads(done.stdout.splitlines()[-1])
    else:
        found["error"] = done.stderr[-2000:]
    smi = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=60, check=False)
    found |= {
        "nvidia_smi": smi.stdout[-3000:], "uid": os.geteuid(), "kernel": platform.release(), "cpus": os.cpu_count(),
        "dev": sorted(str(path) for path in Path("/dev").glob("nvidia*")),
        "shm": subprocess.run(["ls", "-la", "/dev/shm"], capture_output=True, text=True, check=False).stdout[-1500:],
        "programs": {name: shutil.which(name) for name in ("gcc", "nvcc", "ninja", "ldconfig")},
    }  # fmt: skip
    return found


def part(name: str) -> Callable[[Host], dict[str, Any]]:
    def run(host: Host) -> dict[str, Any]:
        del host
        command = [sys.executable, str(PARTS), name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
        told = {"stderr": done.stderr[-3000:], "code": done.returncode}
        if done.returncode == 0:
            return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr[-500:]}
        raise RuntimeError(json.dumps(told))

    return run


def walls(host: Host) -> dict[str, Any]:
    begun = time.perf_counter()
    hello = host.gpu.hello()
    started_s = time.perf_counter() - begun
    for line in (*hello.confinement, *hello.gaps):
        say(f"    {line}")
    softmax = bundled("softmax")
    calls = []
    for _ in range(3):
        begun = time.perf_counter()
        reply = host.gpu.call("probe", softmax, known_good(softmax))
        calls.append({
            "s": time.perf_counter() - begun, "facts": reply.facts, "fault": reply.fault, "log": reply.log[-2000:],
            **numbers(reply),
        })  # fmt: skip
        say(f"    probe: {reply.facts} {reply.fault} in {calls[-1]['s']:.2f} s")
    if any(call["fault"] for call in calls):
        raise RuntimeError(json.dumps({"hello": hello.model_dump(), "calls": calls}))
    return {"supervisor_start_s": started_s, "hello": hello.model_dump(mode="json"), "calls": calls}


def ladder(host: Host) -> dict[str, Any]:
    task = bundled("softmax")
    begun = time.perf_counter()
    reply = host.gpu.call("qualify", task, None, cap_s=120.0)
    found: dict[str, Any] = {
        "qualify": {"s": time.perf_counter() - begun, "facts": reply.facts, "fault": reply.fault, **numbers(reply)}
    }
    say(f"    qualify: {reply.fault or 'done'} in {found['qualify']['s']:.2f} s")
    for name, source in (("triton", triton_softmax()), ("torch", FUSED)):
        say(f"  candidate {name}")
        for rung in ("compile", "check_correctness", "quick_time", "precise_time", "profile"):
            found[f"{name}.{rung}"] = run_and_judge(host, rung, task, source)
    climbs = []
    for number in range(1, NEW_CANDIDATES + 1):
        source = triton_softmax(number)
        begun = time.perf_counter()
        built = run_and_judge(host, "compile", task, source)
        checked = run_and_judge(host, "check_correctness", task, source)
        quick = run_and_judge(host, "quick_time", task, source)
        climbs.append({
            "source_to_quick_s": time.perf_counter() - begun, "compile_s": built["s"],
            "check_s": checked["s"], "quick_s": quick["s"],
            "check_quick_lease_s": sum(step.get("cost", {}).get("lease_s", 0.0) for step in (checked, quick)),
            "verdicts": [step.get("verdict", step.get("fault")) for step in (built, checked, quick)],
        })  # fmt: skip
    found["new_candidates"] = climbs
    for name in ("source_to_quick_s", "check_quick_lease_s"):
        found[f"{name}_median"] = statistics.median(climb[name] for climb in climbs)
        say(f"    {name} median {found[f'{name}_median']:.3f}")
    return found


def first_use(host: Host) -> dict[str, Any]:
    """What still compiles or measures at its first call on the device: apart from the measurement."""
    task = bundled("softmax")
    found: dict[str, Any] = {}
    for name, source in (("autotuned", autotuned_softmax()), ("torch_compile", COMPILED)):
        say(f"  candidate {name}")
        for rung in ("compile", "check_correctness", "quick_time", "precise_time"):
            found[f"{name}.{rung}"] = run_and_judge(host, rung, task, source)
    return found


def against_itself(host: Host) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("softmax", "matmul", "rmsnorm"):
        task = bundled(name)
        for attempt in range(2):
            step = run_and_judge(host, "precise_time", task, known_good(task), looks=[24], floor=0.0)
            found[f"{name}.{attempt}"] = step
            for ratio in step.get("report", {}).get("workloads", ()):
                own = f"{ratio['ratio']:.4f} [{ratio['low']:.4f}, {ratio['high']:.4f}]"
                say(
                    f"      {name} {ratio['workload']}: own {own}"
                    f" outside {ratio['outside_ratio']} [{ratio['outside_low']}, {ratio['outside_high']}]"
                    f" {ratio['candidate_us']} µs"
                )
    return found


def hostile(host: Host) -> dict[str, Any]:
    task = bundled("softmax")
    found: dict[str, Any] = {}
    recoveries = []
    for name, (source, verdicts, cap_s) in HOSTILE.items():
        say(f"  {name}")
        step = run_and_judge(host, "check_correctness", task, source, cap_s=cap_s)
        begun = time.perf_counter()
        after = run_and_judge(host, "check_correctness", task, FUSED)
        recovery_s = time.perf_counter() - begun
        recoveries.append(recovery_s)
        found[name] = {
            **step, "right": step.get("verdict") in verdicts and after.get("verdict") == "correct",
            "recovery_s": recovery_s, "after": after.get("verdict", after.get("fault")),
        }  # fmt: skip
        say(f"    right {found[name]['right']}, next right verdict after {recovery_s:.2f} s: {found[name]['after']}")
    found["recovery_s_max"] = max(recoveries)
    return found


def hogs(host: Host) -> dict[str, Any]:
    """The reference as its own candidate, which keeps the device busy beside its calls: never a gain."""
    found: dict[str, Any] = {}
    for name, source in HOGS.items():
        say(f"  {name}")
        step = run_and_judge(host, "precise_time", large_task(), source, cap_s=60.0)
        found[name] = {**step, "right": step.get("verdict") not in (None, "faster")}
        say(f"    right {found[name]['right']}")
    return found


def large(host: Host) -> dict[str, Any]:
    task = large_task()
    found = {}
    for rung in ("check_correctness", "quick_time", "precise_time"):
        found[rung] = run_and_judge(host, rung, task, RELU_CANDIDATE, cap_s=150.0)
    return found


def whole_server(host: Host) -> dict[str, Any]:
    """The MCP server in memory: start a run, send a Triton candidate up to precise_time."""
    host.renew()
    import asyncio

    from mcp import Client

    from kernelgate.server.app import build
    from kernelgate.server.services import open_services
    from kernelgate.server.settings import Settings

    folder = Path(tempfile.mkdtemp(prefix="kernelgate-server-"))
    folder.chmod(0o755)
    settings = Settings(data_dir=folder, device="cuda:0")

    async def talk() -> dict[str, Any]:
        async with Client(build(lambda: open_services(settings))) as client:
            started = await client.call_tool("start_run", {"task": "softmax"})
            run_id = (started.structured_content or {})["run"]["run_id"]
            begun = time.perf_counter()
            arguments = {"run_id": run_id, "source": triton_softmax(99), "up_to": "precise_time", "wait_s": 55}
            climbed = await client.call_tool("compile", arguments)
            seconds = time.perf_counter() - begun
            return {"start": started.structured_content, "climb": climbed.structured_content, "s": seconds}

    try:
        return asyncio.run(talk())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


STEPS: dict[str, tuple[int, Callable[[Host], dict[str, Any]]]] = {
    "environment": (180, environment),
    "lend": (160, part("lend")),
    "compare": (160, part("compare")),
    "block": (160, part("block")),
    "ceilings": (160, part("ceilings")),
    "walls": (240, walls),
    "ladder": (420, ladder),
    "first_use": (240, first_use),
    "against_itself": (240, against_itself),
    "hostile": (300, hostile),
    "large": (300, large),
    "hogs": (180, hogs),
    "whole_server": (300, whole_server),
}
"""Name → limit in seconds, function."""


def main() -> None:
    parser = argparse.ArgumentParser(description="All of the GPU side on one host, step by step.")
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_host.json")
    parser.add_argument("--only", action="append", choices=list(STEPS), help="run only this step; may be repeated")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / ".dev"), os.environ.get("PYTHONPATH", "")]))
    host = Host()
    found: dict[str, Any] = {"name": "gpu_host", "date_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    for name, (limit_s, step) in STEPS.items():
        if options.only and name not in options.only:
            continue
        say(name)
        begun = time.perf_counter()
        try:
            with limited(limit_s):
                told = {"ok": True, **step(host)}
        except Exception as error:  # noqa: BLE001  written down; the next step goes on
            told = {"ok": False, "error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
            say(f"  FAILED: {told['error'][:1500]}")
            if isinstance(error, TooLong | TimeoutError):
                with contextlib.suppress(Exception):
                    host.renew()
        found[name] = {"step_s": round(time.perf_counter() - begun, 2), **told}
        (options.out / "gpu_host.json").write_text(json.dumps(found, indent=1, default=str) + "\n")
        say(f"{name}: {'ok' if told['ok'] else 'failed'} in {found[name]['step_s']} s")
        if not told["ok"] and "error" not in told:
            say(f"  {json.dumps(told, default=str)[:3000]}")
    with contextlib.suppress(Exception):
        host.renew()


if __name__ == "__main__":
    main()

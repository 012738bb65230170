"""The server of one stream: a process of its own over stdio, with its data folder and caps that are enough."""

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mcp import Client, StdioServerParameters

from kernelgate.budget.ladder.model import Stream
from kernelgate.budget.model import Budget
from kernelgate.server.asking import answer_of
from kernelgate.server.bench.live import WAIT_S, marked
from kernelgate.server.bench.report import WarmUp
from kernelgate.server.policy import FILE_NAME, MOST_S, Policy
from kernelgate.server.settings import Settings
from kernelgate.server.trouble import Trouble
from kernelgate.tasks.model import Task

WARM_UP_RULE: Final = "halving"
"""It lets the first candidate in; and a run under flat would be replayed as a truth by `bench replay`."""
CALLS_EACH: Final = 2
"""Of each rung and candidate: precise is asked for once more at the end, and a fault may cost another."""


def caps_for(stream: Stream, warm_ups: int = 1) -> Budget:
    """What a run may be granted so that the stream ends before it does; no promotions against the rule."""
    calls = CALLS_EACH * (len(stream.lines) + warm_ups)
    return Budget(
        compile_calls=calls, check_calls=calls, quick_calls=calls, precise_calls=calls, override_calls=0,
        device_s=MOST_S, deadline_s=MOST_S,
    )  # fmt: skip


def policy_text(policy: Policy, caps: Budget) -> str:
    """The owner's prices and rules under other caps, as TOML. Caps of accounts are of another ledger: left out."""
    lines = ["# Written by `kernelgate bench ladder`: caps that are enough for the whole stream.", "[caps]"]
    lines += [f"{name} = {value!r}" for name, value in caps.model_dump().items() if value is not None]
    for tool, price in policy.prices.items():
        lines += [f"[prices.{tool}]", f"first_hold_s = {price.first_hold_s!r}"]
    for rule, parameters in policy.rules.items():
        lines += [f"[rules.{rule}]", *(f"{name} = {value!r}" for name, value in parameters.items())]
    return "\n".join(lines) + "\n"


def server_on(settings: Settings, folder: Path, task_dirs: Sequence[Path], stream: Stream) -> StdioServerParameters:
    """The server to start; its data folder is made, with its policy in it."""
    policy_file = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        policy_file.write_text(policy_text(settings.policy, caps_for(stream)), encoding="utf-8")
    except OSError as error:
        raise Trouble(f"{policy_file} cannot be written: {error.strerror}; name another folder with --data") from None
    command = ["-m", "kernelgate.server", "serve", "--data", str(folder), "--config", str(policy_file)]
    for flag, value in (("--device", settings.device), ("--kernelbench", settings.kernelbench)):
        command += [flag, str(value)] if value else []
    for each in task_dirs:
        command += ["--tasks", str(each)]
    # All of the environment: what chooses GPUs and compilers stands there.
    return StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))


async def warm_up(client: Client, task: Task) -> WarmUp:
    """The reference climbs as a candidate of a run of its own, as far as it comes; raises `Trouble`."""
    begun_s = time.perf_counter()
    run = (await answer_of(client, "start_run", {"task": task.name, "rule": WARM_UP_RULE}))["run"]
    source = marked(re.sub(r"\bModel\b", "ModelNew", task.source), "warm-up")
    arguments = {"run_id": run["run_id"], "source": source, "up_to": "precise_time", "wait_s": WAIT_S}
    reply = await answer_of(client, "compile", arguments)
    return WarmUp(device_s=reply["cost"]["charged_s"], wall_s=round(time.perf_counter() - begun_s, 6))

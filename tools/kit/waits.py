"""What warps waited for, in one line, from what Nsight Compute saw of the longest launch. Pure."""

from collections.abc import Sequence
from typing import Final

from kernelgate.tools.kit.evidence import Inspected
from kernelgate.tools.kit.findings import cut
from kernelgate.tools.kit.readings import cleaned, short

WORDS: Final = {
    "barrier": "other warps at a barrier",
    "branch_resolving": "the target of a branch",
    "dispatch_stall": "the dispatcher",
    "drain": "its last stores",
    "gmma": "products of tensor cores",
    "imc_miss": "a constant from memory",
    "lg_throttle": "room in the queue of global memory",
    "long_scoreboard": "data from global or local memory",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "membar": "a memory barrier",
    "mio_throttle": "room in the queue of shared memory",
    "no_instruction": "its next instructions",
    "not_selected": "its turn: others were ready too",
    "short_scoreboard": "data from shared memory or a special function",
    "sleeping": "the end of a sleep",
    "tex_throttle": "room in the queue of textures",
    "wait": "the latency of its arithmetic",
}
"""Nsight Compute's reasons; what is not here is told by its name."""
TOLD: Final = 3
LEAST_SHARE: Final = 0.1
"""A rarer reason explains nothing."""
MAX_PLACE_CHARS: Final = 90


def told(inspected: Sequence[Inspected]) -> str:
    """Reasons with their shares and the hottest place; empty where Nsight Compute did not tell any."""
    longest = max(inspected, key=lambda launch: launch.us, default=None)
    if longest is None:
        return ""
    launch = cleaned(longest)
    reasons = [
        f"{WORDS.get(stall.reason, cut(stall.reason, 40))} ({stall.share:.0%})"
        for stall in launch.stalls[:TOLD]
        if stall.share >= LEAST_SHARE
    ]
    if not reasons:
        return ""
    hottest = launch.hot[0] if launch.hot else None
    where = "" if hottest is None else f", most at {cut(hottest.place, MAX_PLACE_CHARS)} ({hottest.share:.0%})"
    return f"a warp of {short(launch.name)} waits for {', '.join(reasons)}{where}"

"""One part of the code for a GPU at a time, without supervisor or walls: `python gpu_parts.py lend`. Prints JSON."""

import json
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import gpu_path as gpu_path  # before the package
import torch

from kernelgate.tasks.model import Tolerance
from kernelgate.tools.worker import cuda_rehearsal
from kernelgate.tools.worker.compare import compare_values
from kernelgate.tools.worker.cuda_ceilings import measure_cuda_ceilings
from kernelgate.tools.worker.cuda_driver import CUDA_DEVICE, start_cuda
from kernelgate.tools.worker.cuda_timing import CudaTimer
from kernelgate.tools.worker.poison import draw_poison

FORKS = 5


def lend() -> dict[str, Any]:
    """Two children of a process that never touches CUDA: one lends, the other opens, answers and gives back."""
    near, far = socket.socketpair()
    begun = time.perf_counter()
    pids = [_fork(lambda: cuda_rehearsal.lend(near), far), _fork(lambda: cuda_rehearsal.borrow(far), near)]
    near.close(), far.close()
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    lent = time.perf_counter()
    return {
        "ok": codes == [0, 0],
        "codes": codes,
        "lend_and_borrow_s": lent - begun,
        "fork_to_ready_s": [_fork_to_ready_s() for _ in range(FORKS)],
    }


def _fork_to_ready_s() -> float:
    """From the fork to the child's word that its first tensor is on the device."""
    near, far = socket.socketpair()
    begun = time.perf_counter()
    pid = _fork(lambda: (start_cuda(), far.sendall(b"r")), near)
    far.close()
    if near.recv(1) != b"r":
        raise RuntimeError("a child could not start CUDA")
    ready_s = time.perf_counter() - begun
    os.waitpid(pid, 0)
    near.close()
    return ready_s


def _fork(work: Callable[[], object], other: socket.socket) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        other.close()
        work()
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 1
    except BaseException:  # noqa: BLE001  nothing may escape into the parent's stack
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def compare() -> dict[str, Any]:
    """Right, nearly right, wrong, not finite, and an untouched answer; larger than one piece."""
    start_cuda()
    want = torch.randn(5000, 4099, device=CUDA_DEVICE)
    tolerance = Tolerance(rtol=1e-4, atol=1e-5)
    found: dict[str, str] = {"same": compare_values(want.clone(), want, tolerance).problem}
    found["near"] = compare_values(want * (1 + 1e-6), want, tolerance).problem
    tail = want.clone()
    tail[-37:] += 1
    wrong = compare_values(tail, want, tolerance)
    found["wrong"], found["pattern"] = wrong.problem, wrong.pattern
    nan = want.clone()
    nan[3, 5] = float("nan")
    found["nan"] = compare_values(nan, want, tolerance).problem
    shares = {}
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn):
        answer = torch.empty(1000, dtype=dtype, device=CUDA_DEVICE)
        poison = draw_poison(dtype, random.Random(1))
        poison.fill(answer)
        shares[str(dtype)] = poison.untouched_share(answer)
    begun = time.perf_counter()
    compare_values(want * (1 + 1e-6), want, tolerance)
    torch.cuda.synchronize()
    right = {"same": "none", "near": "none", "wrong": "wrong_values", "nan": "nonfinite"}
    ok = all(found[name] == problem for name, problem in right.items()) and set(shares.values()) == {1.0}
    return {"ok": ok and len(wrong.first) == 5, "found": found, "shares": shares, "s": time.perf_counter() - begun}


def block() -> dict[str, Any]:
    """Blocks of a softmax: covered or not, by events and by the wall clock."""
    timer = CudaTimer(start_cuda())
    pool = {index: ((torch.randn(4096, 4096, device=CUDA_DEVICE),), {}) for index in range(9)}
    place = torch.empty(4096, 4096, device=CUDA_DEVICE)
    blocks: list[dict[str, Any]] = []
    ends: list[float] = []
    for sleep_us in (0.0, 200.0, 1_000.0, 2_000.0, 2_000.0):
        begun = time.perf_counter()
        times = timer.time_block(
            lambda x: torch.softmax(x, -1), pool, list(pool), lambda: None,
            lambda _, output: place.copy_(output), sleep_us, lambda: ends.append(time.perf_counter()),
        )  # fmt: skip
        blocks.append({
            "sleep_us": sleep_us, "covered": times.covered, "enqueue_us": times.enqueue_us,
            "samples_us": [sample / 1e3 for sample in times.samples_ns], "wall_us": (ends[-1] - begun) * 1e6,
        })  # fmt: skip
    ok = bool(blocks[-1]["covered"]) and all(10 < sample < 1_000 for sample in blocks[-1]["samples_us"])
    return {"ok": ok, "blocks": blocks}


def ceilings() -> dict[str, Any]:
    """In float32 and in half precision."""
    start_cuda()
    found = {str(dtype): measure_cuda_ceilings(dtype).model_dump() for dtype in (torch.float32, torch.bfloat16)}
    return {"ok": all(value["copy_gb_s"] > 100 for value in found.values()), "found": found}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "lend": lend, "compare": compare, "block": block, "ceilings": ceilings,
}  # fmt: skip

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]]()))  # noqa: T201  the answer of this program

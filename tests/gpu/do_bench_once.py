"""One candidate as KernelAgent times it: a fresh interpreter, inputs, one comparison, `do_bench` of 25 and 100 ms.

`python tests/gpu/do_bench_once.py REFERENCE CANDIDATE cuda|cpu` prints a line of JSON. It imports nothing of ours,
whose start would be told as the method's. On the CPU a loop of the same lengths stands for `do_bench`, so that all but
the figures can be tried without a GPU.
"""

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

WARM_UP_MS, REPEAT_MS = 25, 100
TOLERANCE = 1e-3
"""KernelAgent's default, relative and absolute."""
SEED = 0


def judged(reference: Path, candidate: Path, kind: str) -> dict[str, Any]:
    """In this process. `device_s`: from the first use of the device to the last, when nobody else would get it."""
    import torch

    modules = [loaded(path) for path in (reference, candidate)]
    began_s = time.perf_counter()
    models = []
    for module, name in zip(modules, ("Model", "ModelNew"), strict=True):
        torch.manual_seed(SEED)
        models.append(getattr(module, name)(*modules[0].get_init_inputs()).to(kind))
    inputs = [one.to(kind) if isinstance(one, torch.Tensor) else one for one in modules[0].get_inputs()]
    with torch.no_grad():
        expected, got = (model(*inputs) for model in models)
        correct = bool(torch.allclose(expected, got, rtol=TOLERANCE, atol=TOLERANCE))
        measure = on_the_cpu if kind == "cpu" else do_bench()
        reference_ms, runtime_ms = (measure(partial(model, *inputs)) for model in models)
    return {
        "device_s": time.perf_counter() - began_s, "correct": correct, "runtime_ms": runtime_ms,
        "reference_ms": reference_ms,
    }  # fmt: skip


def loaded(path: Path) -> Any:
    """A file as a module: Triton reads a kernel's source from its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def do_bench() -> Callable[[Callable[[], Any]], float]:
    """Triton's, the mean, with the lengths that KernelAgent gives."""
    from triton.testing import do_bench as measure

    return lambda call: float(measure(call, warmup=WARM_UP_MS, rep=REPEAT_MS, return_mode="mean"))


def on_the_cpu(call: Callable[[], Any]) -> float:
    """Milliseconds a call: the same lengths by the wall clock."""
    calls = 0
    for length_ms in (WARM_UP_MS, REPEAT_MS):
        calls, began_s = 0, time.perf_counter()
        while (took_ms := (time.perf_counter() - began_s) * 1e3) < length_ms:
            call()
            calls += 1
    return took_ms / calls


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(judged(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))}\n")

"""A program: which candidates are right? Reads JSON lines (task, name, source), writes one for each with its verdict.

They run in Triton's interpreter, on inputs, bounds and comparisons of the product's own referee, at sizes that a check
on the CPU device does not have: odd ones, and a few rows of a GPU's hidden width. Products of matrices are rounded as
tensor cores round them, which the interpreter alone does not do. Each candidate has a process of its own.
"""

import faulthandler
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy
import torch

from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Distribution, Task, Workload
from kernelgate.tools.worker.calibration import output_facts
from kernelgate.tools.worker.compare import compare_values
from kernelgate.tools.worker.inputs import Drawn
from kernelgate.tools.worker.interpreter import prepare_interpreter
from kernelgate.tools.worker.reference import HeldWorkload
from kernelgate.tools.worker.structure import call_arguments

ODD: Final[dict[str, tuple[dict[str, int], ...]]] = {
    # The first is tried with all distributions, the others with some.
    "matmul": ({"M": 67, "N": 45, "K": 83}, {"M": 150, "N": 277, "K": 331}),
    "linear_gelu": (
        {"BATCH": 67, "IN_FEATURES": 83, "OUT_FEATURES": 45},
        {"BATCH": 150, "IN_FEATURES": 331, "OUT_FEATURES": 277},
    ),
    "softmax": ({"ROWS": 13, "COLS": 333}, {"ROWS": 3, "COLS": 12289}),
    "rmsnorm": ({"ROWS": 13, "COLS": 333}, {"ROWS": 3, "COLS": 5121}),
    "layernorm_residual": ({"ROWS": 13, "COLS": 333}, {"ROWS": 3, "COLS": 5121}),
    "cross_entropy": ({"BATCH": 13, "CLASSES": 333}, {"BATCH": 3, "CLASSES": 50257}),
}
SEED: Final = 11
LIMIT_S: Final = 150
PRECISIONS: Final = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
"""Of a GPU of compute capability 9.0."""
FEW: Final[tuple[Distribution, ...]] = ("normal", "large", "small")


class Asked(NamedTuple):
    """Inputs, and what is right for them."""

    held: HeldWorkload
    distribution: str
    drawn: Drawn
    want: torch.Tensor
    bound: Any


def questions(task: Task) -> list[Asked]:
    """What a candidate is asked, on each workload more than once: its second call is tried too."""
    asked = []
    for number, overrides in enumerate(ODD[task.name]):
        held = HeldWorkload(task, Workload(name=f"odd{number}", overrides=overrides), "cpu")
        for distribution in task.distributions if number == 0 else FEW:
            drawn = held.draw(distribution, SEED)
            want = held.expect(drawn.arguments, SEED)
            (facts,) = output_facts(task, held, distribution, drawn, want, SEED, {})
            asked.append(Asked(held, distribution, drawn, want, facts.bound(held.name, distribution)))
    return asked


def rounded_as_tensor_cores() -> None:
    """Make the interpreter's `dot` honour `input_precision`."""
    from triton.runtime import interpreter

    builder: Any = interpreter.interpreter_builder
    plain = builder.create_dot

    def create_dot(a: Any, b: Any, d: Any, input_precision: Any, most: Any) -> Any:
        kind = str(input_precision).rpartition(".")[2].upper()
        a, b = _as_float(a), _as_float(b)
        if a.data.dtype != numpy.float32 or kind == "IEEE":
            return plain(a, b, d, input_precision, most)
        parts = {"TF32": 1, "TF32X3": 2, "BF16X3": 2, "BF16X6": 3}[kind]
        kept = 10 if kind.startswith("TF32") else 7
        total = numpy.zeros_like(d.data)
        lefts, rights = (_split(one.data, parts, kept) for one in (a, b))
        with numpy.errstate(all="ignore"):
            for place in reversed(range(parts)):
                for i in range(place + 1):
                    total = total + lefts[i] @ rights[place - i]
                if place:  # as Triton does: what infinity leaves behind must not spoil the last product
                    total = numpy.where(numpy.isnan(total), 0, total).astype(total.dtype)
            data = total + d.data
        return interpreter.TensorHandle(data, d.dtype.scalar)

    def _as_float(one: Any) -> Any:
        if one.dtype.scalar != interpreter.tl.bfloat16:
            return one  # bfloat16 comes as its bits, which `dot` would multiply as whole numbers
        wide = (one.data.astype(numpy.uint32) << 16).view(numpy.float32)
        return interpreter.TensorHandle(wide, interpreter.tl.float32)

    builder.create_dot = create_dot
    object.__setattr__(builder.options, "allowed_dot_input_precisions", PRECISIONS)


def _split(data: Any, parts: int, kept: int) -> list[Any]:
    """The same as a sum of numbers with so many bits of fraction."""
    found, rest = [], data.astype(numpy.float32)
    mask = numpy.uint32(0xFFFFFFFF << (23 - kept) & 0xFFFFFFFF)
    half = numpy.uint32(1 << (22 - kept))
    with numpy.errstate(all="ignore"):
        for _ in range(parts):
            bits = rest.view(numpy.uint32)
            near = numpy.where(numpy.isfinite(rest), (bits + half) & mask, bits).astype(numpy.uint32)
            found.append(near.view(numpy.float32))
            rest = (rest - found[-1]).astype(numpy.float32)
    return found


def verdict_of(asked: list[Asked], source: str) -> str:
    """`right`, or what was wrong first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "candidate.py")
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("candidate", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        models: dict[str, Any] = {}
        try:
            spec.loader.exec_module(module)
            for one in asked:
                if one.held.name not in models:
                    positional, named = call_arguments(one.held.built.init_arguments)
                    models[one.held.name] = module.ModelNew(*positional, **named)
                    models[one.held.name].load_state_dict(one.held.built.module.state_dict())
                said = _compared(models[one.held.name], one)
                if said:
                    return f"wrong at {one.held.name} {one.distribution}: {said}"
        except Exception as error:  # noqa: BLE001  what a candidate raises is its verdict
            return f"raises {type(error).__name__}: {str(error)[:300]}"
    return "right"


def _compared(model: Any, one: Asked) -> str:
    positional, named = call_arguments(one.drawn.arguments)
    before = [tensor.clone() for tensor in one.drawn.tensors]
    with torch.no_grad():
        got = model(*positional, **named)
    if got.shape != one.want.shape or got.dtype != one.want.dtype:
        return f"{tuple(got.shape)} of {got.dtype}"
    for old, tensor in zip(before, one.drawn.tensors, strict=True):
        if not torch.equal(old.nan_to_num(), tensor.nan_to_num()):
            return "it writes into its inputs"
    found = compare_values(got.contiguous(), one.want, one.bound)
    if found.problem == "none":
        return ""
    return f"{found.problem}, {found.wrong_share:.2%} of it, worst {found.worst_abs:.2e}; bound {one.bound.atol:.1e}"


def _child(asked: list[Asked], source: str, pipe: Connection) -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  until the process ends
    faulthandler.disable()
    pipe.send(verdict_of(asked, source))
    pipe.close()
    os._exit(0)


def main() -> None:
    torch.set_num_threads(1)
    # An unwritten element is nan, as the server makes it, not what a lucky allocation held.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    prepare_interpreter("sm_90")
    rounded_as_tensor_cores()
    by_task: dict[str, list[Asked]] = {}
    fork = multiprocessing.get_context("fork")
    for line in sys.stdin:
        candidate = json.loads(line)
        if candidate["task"] not in by_task:
            by_task[candidate["task"]] = questions(Catalogue().task(candidate["task"]))
        near, far = fork.Pipe(duplex=False)
        child = fork.Process(target=_child, args=(by_task[candidate["task"]], candidate["source"], far))
        child.start()
        far.close()
        verdict = "raises nothing within the limit"
        if near.poll(LIMIT_S):
            try:
                verdict = near.recv()
            except EOFError:
                verdict = "raises: its process ended"
        else:
            child.kill()
        child.join()
        sys.stdout.write(json.dumps({"name": candidate["name"], "verdict": verdict}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

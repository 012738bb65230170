"""A program: are the one-fault kernels right on their small workloads? Prints a line for each that is not, then `done`.

Triton reads TRITON_INTERPRET when it is imported, and its functions need a file: hence a process of its own.
"""

import sys
import tempfile
from pathlib import Path

import gpu_path as gpu_path  # before the package
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from interpreted_candidate import loaded
from one_fault import CASES, OneFault

from kernelgate.tasks.source import with_overrides

SHARE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.int32: 0.0}
"""Of a value, or of the mean of all: another order of sums stays far below, a wrong mask far above."""


def tried(case: OneFault, folder: str) -> None:
    """Raises AssertionError with the worst element where it is wrong."""
    torch.manual_seed(0)
    reference = loaded(f"{case.name}_reference", with_overrides(case.task.source, dict(case.task.on_cpu)), folder)
    candidate = loaded(case.name, case.source, folder)
    inputs = reference.get_inputs()
    with torch.no_grad():
        wanted, found = reference.Model()(*inputs), candidate.ModelNew()(*inputs)
    share = SHARE[wanted.dtype]
    torch.testing.assert_close(found, wanted, rtol=share, atol=share * wanted.double().abs().mean().item())
    assert found.is_contiguous()


def main(*names: str) -> None:
    """Try those of these names, or all."""
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if names and case.name not in names:
                continue
            try:
                tried(case, folder)
            except Exception as error:  # noqa: BLE001  told; the next one goes on
                sys.stdout.write(f"{case.name}: {type(error).__name__}: {error}\n")
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

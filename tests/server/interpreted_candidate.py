"""A program: is the candidate on stdin right on the hidden CPU workload of the task that is named? Prints `right`.

Triton reads TRITON_INTERPRET when it is imported, and its functions need a file: hence a process of its own.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch

from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.source import with_overrides

SHARE = 1e-4
"""Of a value, or of the mean of all: float32 sums in another order stay far below, a wrong mask far above."""


def loaded(name: str, text: str, folder: str) -> ModuleType:
    path = Path(folder, f"{name}.py")
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(task_name: str) -> None:
    """Raises AssertionError with the worst element where it is wrong."""
    task = Catalogue().task(task_name)
    (workload,) = (found for found in task.workloads_on("cpu", held_out=True) if found.held_out)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        reference = loaded("reference", with_overrides(task.source, workload.overrides), folder)
        candidate = loaded("candidate", sys.stdin.read(), folder)
        model = reference.Model(*reference.get_init_inputs())
        new = candidate.ModelNew(*reference.get_init_inputs())
        new.load_state_dict(model.state_dict())
        inputs = reference.get_inputs()
        with torch.no_grad():
            wanted = model(*inputs)
            found = new(*inputs)
    torch.testing.assert_close(found, wanted, rtol=SHARE, atol=SHARE * wanted.abs().mean().item())
    sys.stdout.write("right\n")


if __name__ == "__main__":
    main(sys.argv[1])

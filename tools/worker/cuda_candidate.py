"""What a candidate's process has on a GPU: lent memory, a timer, a count of what was compiled.

All that it reports is a claim: the candidate's code runs in the same process.
"""

import sys
from typing import Any

from kernelgate.tools.worker.cuda_driver import start_cuda
from kernelgate.tools.worker.cuda_lending import CudaBorrower
from kernelgate.tools.worker.cuda_timing import CudaTimer


class CudaSide:
    """Made when the candidate is loaded, before its module is imported."""

    def __init__(self) -> None:
        """Starts CUDA: about 0.3 s. Raises `CudaFailure`."""
        driver = start_cuda()
        self.borrower = CudaBorrower(driver)
        self.timer = CudaTimer(driver)
        self.compilations = CompileCount()


class CompileCount:
    """How many kernels Triton and torch.compile have made ready in this process, whether compiled or from a cache."""

    def __init__(self) -> None:
        """Hangs itself into Triton as its listener, where this version of Triton has one.

        Not as its hook after compiling: for that Triton writes each constant of a kernel as JSON, which not all can be.
        """
        self._triton = 0
        knobs: Any = getattr(sys.modules.get("triton"), "knobs", None)
        compilation: Any = getattr(knobs, "compilation", None)
        if hasattr(compilation, "listener"):
            compilation.listener = self._note

    def total(self) -> int:
        """So far."""
        dynamo: Any = sys.modules.get("torch._dynamo.utils")
        counters: Any = getattr(dynamo, "counters", {})
        graphs = counters.get("stats", {}).get("unique_graphs", 0)
        return self._triton + int(graphs)

    def _note(self, **_: object) -> None:
        self._triton += 1

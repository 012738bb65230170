"""What is told of compiled kernels: how much of each fits on a multiprocessor, and advice. Pure."""

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import BeforeValidator

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit import occupancy as occupancy_rules
from kernelgate.tools.kit.facts import Kernel
from kernelgate.tools.kit.occupancy import Occupancy

MAX_KERNELS_SHOWN: Final = 12
"""A reply stays under 4,000 tokens; each kernel takes about 150."""


class KernelReport(Frozen):
    """One compiled kernel, and how much of it fits on a multiprocessor."""

    kernel: Kernel
    occupancy: Occupancy | None
    """None where registers, warps per block (0, as C++ decides them) or limits of the architecture are unknown."""
    advice: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()


def kernel_reports(kernels: Sequence[Kernel], notes: list[str]) -> list[KernelReport]:
    """Of all kernels, those with advice first; what cannot be told of them is added to the notes."""
    reports: list[KernelReport] = []
    for kernel in kernels:
        unknown = occupancy_rules.why_unknown(kernel)
        found = None if unknown else occupancy_rules.occupancy(kernel, kernel.target)
        advice = occupancy_rules.advice(kernel, found) if kernel.registers else ()
        reports.append(KernelReport(kernel=kernel, occupancy=found, advice=advice))
        if unknown and unknown not in notes and kernel.registers:
            notes.append(unknown)
    reports.sort(key=lambda report: not report.advice)
    if len(reports) > MAX_KERNELS_SHOWN:
        notes.append(f"{MAX_KERNELS_SHOWN} of {len(reports)} compiled kernels are shown, those with advice first")
    return reports

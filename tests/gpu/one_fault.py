"""Kernels that each have exactly one known fault of performance, and some that have none.

A profile of one must name that fault first. Everything else about it is good: coalesced, vectorised, enough warps and
blocks. `one_fault_*.py` hold the sources by family; `coach_run.py` takes them through the product on a GPU.
"""

from typing import Final

from one_fault_arithmetic import ARITHMETIC
from one_fault_case import OneFault as OneFault
from one_fault_healthy import HEALTHY
from one_fault_host import HOST
from one_fault_memory import MEMORY
from one_fault_passes import PASSES
from one_fault_shape import SHAPE

CASES: Final = (*HEALTHY, *MEMORY, *SHAPE, *PASSES, *ARITHMETIC, *HOST)
FAULTY: Final = tuple(case for case in CASES if case.kinds)

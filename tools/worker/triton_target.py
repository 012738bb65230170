"""A GPU target without a GPU: device properties, and the stand-in driver that Triton compiles (or interprets) with.

Nothing here opens a CUDA context. Of Triton's interface it uses what 3.6 and 3.9 have in common: `driver.set_active`,
`get_current_target`, `get_benchmarker`, `utils.get_device_properties`.
"""

import importlib.util
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.occupancy import LIMITS, WARP_THREADS, Limits
from kernelgate.tools.worker import fake_cuda

ONE_RUN_MS: Final = 1.0
"""What the stand-in benchmarker says of each call: nothing was measured, so all are equal."""
ASSUMED_REGISTERS: Final = 32
"""Told to candidates that ask a loaded binary for its registers; the true number is read from the binary later."""


class TargetProperties(Frozen):
    """The properties of a device of this architecture that compilers and candidates ask for."""

    target: str
    device_name: str
    major: int
    minor: int
    multiprocessors: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    memory_bytes: int
    l2_bytes: int

    @property
    def arch(self) -> int:
        """The number that Triton names it by: 90 for compute capability 9.0."""
        return self.major * 10 + self.minor


GIB: Final = 1 << 30
MIB: Final = 1 << 20
_ARCHITECTURE: Final = re.compile(r"sm_(\d{1,2})(\d)[af]?")
_PROPERTIES: Final = (
    ("sm_75", "Tesla T4", 40, 1_590_000, 5_001_000, 256, 15 * GIB, 4 * MIB),
    ("sm_80", "NVIDIA A100-SXM4-80GB", 108, 1_410_000, 1_593_000, 5120, 80 * GIB, 40 * MIB),
    ("sm_86", "NVIDIA A10", 72, 1_695_000, 6_251_000, 384, 24 * GIB, 6 * MIB),
    ("sm_89", "NVIDIA L40S", 142, 2_520_000, 9_001_000, 384, 48 * GIB, 96 * MIB),
    ("sm_90", "NVIDIA H100 80GB HBM3", 132, 1_980_000, 2_619_000, 5120, 80 * GIB, 50 * MIB),
    ("sm_100", "NVIDIA B200", 148, 1_965_000, 3_996_000, 8192, 180 * GIB, 126 * MIB),
    ("sm_120", "NVIDIA GeForce RTX 5090", 170, 2_407_000, 14_001_000, 512, 32 * GIB, 96 * MIB),
)
"""One common device per architecture. Source: NVIDIA's architecture white papers and data sheets (T4, A100, A10, L40S,
H100 SXM, B200, RTX 5090); multiprocessors, clocks and L2 as `nvidia-smi` and `deviceQuery` show them on such cards."""


def properties_of(target: str) -> TargetProperties:
    """The properties of a target such as `sm_90`; raises ValueError for what is no architecture.

    One that is not in the table has its own number, and all else of the last one before it: that is enough to compile.
    """
    number = _ARCHITECTURE.fullmatch(target)
    if number is None:
        raise ValueError(f"{target} is no architecture; one is written like sm_90")
    _, device, multiprocessors, clock, memory_clock, bus, memory, l2 = _row_of(target)
    return TargetProperties(
        target=target,
        device_name=device,
        major=int(number[1]),
        minor=int(number[2]),
        multiprocessors=multiprocessors,
        clock_khz=clock,
        memory_clock_khz=memory_clock,
        memory_bus_bits=bus,
        memory_bytes=memory,
        l2_bytes=l2,
    )


def standin_limits(target: str) -> Limits:
    """The limits of an architecture, or of the last one before it that is in the table."""
    return LIMITS.get(target.rstrip("af")) or LIMITS[_row_of(target)[0]]


def _row_of(target: str) -> tuple[str, str, int, int, int, int, int, int]:
    before = [row for row in _PROPERTIES if _arch(row[0]) <= _arch(target)]
    return before[-1] if before else _PROPERTIES[0]


def _arch(target: str) -> int:
    return int(target.removeprefix("sm_").rstrip("af"))


def install_standin_driver(target: str) -> None:
    """Make Triton compile for a target, and run a function once where it would benchmark it.

    To be called in the candidate's process, on hosts without a GPU and in traces, before the candidate is imported
    and after `TRITON_INTERPRET` was decided: in both modes, since the interpreter's `@triton.autotune` otherwise
    asks for a GPU. Questions to `torch.cuda` are answered for the target too. Without Triton only the latter.
    Raises ValueError for an unknown target.
    """
    answer_for(target)
    if importlib.util.find_spec("triton") is None:
        return
    properties = properties_of(target)
    driver: Any = importlib.import_module("triton.runtime.driver").driver
    compiler: Any = importlib.import_module("triton.backends.compiler")
    driver.set_active(StandinDriver(properties, compiler.GPUTarget("cuda", properties.arch, WARP_THREADS)))


def answer_for(target: str) -> None:
    """Have questions to `torch.cuda` answered for a target; raises ValueError for an unknown one."""
    properties = properties_of(target)
    fake_cuda.answer_queries(
        fake_cuda.properties_namespace(
            name=properties.device_name,
            major=properties.major,
            minor=properties.minor,
            multiprocessors=properties.multiprocessors,
            memory_bytes=properties.memory_bytes,
            l2_bytes=properties.l2_bytes,
            limits=standin_limits(target),
        )
    )


def run_once(call: Callable[[], object], quantiles: Sequence[float] | None = None, **_: object) -> Any:
    """The stand-in for Triton's benchmarkers: one call, no measurement."""
    call()
    return [ONE_RUN_MS] * len(quantiles) if quantiles else ONE_RUN_MS


class StandinUtilities:
    """What Triton's driver offers beside the driver itself: properties, and binaries that are never loaded."""

    def __init__(self, properties: TargetProperties) -> None:
        self._properties = properties

    def get_device_properties(self, device: int) -> dict[str, int]:
        """The dictionary that Triton's own driver returns for a device."""
        properties, limits = self._properties, standin_limits(self._properties.target)
        return {
            "max_shared_mem": limits.block_shared_bytes,
            "max_num_regs": limits.registers,
            "multiprocessor_count": properties.multiprocessors,
            "warpSize": WARP_THREADS,
            "sm_clock_rate": properties.clock_khz,
            "mem_clock_rate": properties.memory_clock_khz,
            "mem_bus_width": properties.memory_bus_bits,
        }

    def load_binary(self, name: str, binary: bytes, shared_bytes: int, device: int) -> tuple[int, int, int, int, int]:
        """Module, function, registers, spills, most threads per block: placeholders, nothing is loaded."""
        most_threads = standin_limits(self._properties.target).block_warps * WARP_THREADS
        return 1, 1, ASSUMED_REGISTERS, 0, most_threads

    def unload_module(self, module: int) -> None:
        """Nothing was loaded."""


class StandinDriver:
    """A Triton driver that has a target and no device."""

    def __init__(self, properties: TargetProperties, gpu_target: object) -> None:
        self._properties = properties
        self._gpu_target = gpu_target
        self.utils = StandinUtilities(properties)
        self.binary_ext = "cubin"

    def get_current_target(self) -> object:
        """What to compile for."""
        return self._gpu_target

    def get_current_device(self) -> int:
        """The only device there seems to be."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one device."""

    def get_current_stream(self, device: int = 0) -> int:
        """The default stream."""
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Compute capability of the target."""
        return self._properties.major, self._properties.minor

    def get_active_torch_device(self) -> Any:
        """The device that Triton's helpers allocate on."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """The torch module of the device."""
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        """Runs the function once."""
        return run_once

    def launcher_cls(self, source: object, metadata: object) -> Callable[..., None]:
        """A launcher that does not launch."""

        def launch(*_: object, **__: object) -> None:
            return

        return launch

    def assemble_tensormap_to_arg(self, tensormaps_info: object, args: Any) -> Any:
        """Arguments as they came."""
        return args

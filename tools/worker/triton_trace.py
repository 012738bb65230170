"""Triton under a trace: each launch compiles for the target and stops there; autotuners compile, and measure nothing.

Works with what Triton 3.6 and 3.9 have in common: `JITFunction.run(*args, grid, warmup, **kwargs)` and
`Autotuner.do_bench`. Runs in the candidate's own process.
"""

import contextlib
import importlib
import importlib.util
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, cast

from kernelgate.tools.kit.occupancy import LIMITS, WARP_THREADS
from kernelgate.tools.worker.fake_cuda import fake_addresses, replaced
from kernelgate.tools.worker.triton_target import ONE_RUN_MS, install_standin_driver

MAX_GRID: Final = ((1 << 31) - 1, 65535, 65535)
"""Most blocks in x, y and z (CUDA C++ Programming Guide, technical specifications)."""


class LaunchTrace:
    """What was launched while it was active."""

    def __init__(self, target: str, *, configurations: int, compile_s: float) -> None:
        """At most so many configurations of autotuned kernels are compiled, and none after so many seconds."""
        self.launches = 0
        self.kernels: list[Any] = []
        """Compiled ones that a launch would run, each once or more often."""
        self.configurations = 0
        self.configurations_skipped = 0
        self._target = target
        self._limits = LIMITS.get(target.rstrip("af"))
        self._most_configurations = configurations
        self._deadline = time.monotonic() + compile_s

    @contextlib.contextmanager
    def active(self) -> Generator[None]:
        """Compile instead of launching, for a while. Without Triton there is nothing to do."""
        if importlib.util.find_spec("triton") is None:
            yield
            return
        install_standin_driver(self._target)
        testing: Any = importlib.import_module("triton.testing")
        autotuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner
        jit_function: Any = importlib.import_module("triton.runtime.jit").JITFunction
        original: Callable[..., Any] = jit_function.run

        def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if not warmup:
                self.launches += 1
                _check_grid(_grid_of(function, grid, args, kwargs), function)
            with fake_addresses():
                kernel = original(function, *args, grid=grid, warmup=True, **kwargs)
            self._check_resources(kernel)
            self.kernels.append(kernel)
            return kernel

        with contextlib.ExitStack() as stack:
            stack.enter_context(replaced(jit_function, "run", run))
            stack.enter_context(replaced(autotuner, "do_bench", property(lambda _: self._bench)))
            for name in ("do_bench", "do_bench_cudagraph"):
                stack.enter_context(replaced(testing, name, self._bench))
            yield

    def _bench(
        self, call: Callable[[], object], *_: object, quantiles: Sequence[float] | None = None, **__: object
    ) -> Any:
        """Compile one configuration, unless there were too many or too slow ones."""
        if self.configurations >= self._most_configurations or time.monotonic() > self._deadline:
            self.configurations_skipped += 1
            return [float("inf")] * len(quantiles) if quantiles else float("inf")
        self.configurations += 1
        call()
        return [ONE_RUN_MS] * len(quantiles) if quantiles else ONE_RUN_MS

    def _check_resources(self, kernel: Any) -> None:
        """What the driver would refuse when it loads the binary; Triton's own error, which autotuners expect."""
        out_of_resources: Any = importlib.import_module("triton.runtime.errors").OutOfResources
        metadata = getattr(kernel, "metadata", None)
        if self._limits is None:
            return
        shared = getattr(metadata, "shared", 0)
        if shared > self._limits.block_shared_bytes:
            raise out_of_resources(shared, self._limits.block_shared_bytes, "shared memory")
        threads, most_threads = (
            getattr(metadata, "num_warps", 1) * WARP_THREADS,
            self._limits.block_warps * WARP_THREADS,
        )
        if threads > most_threads:
            raise out_of_resources(threads, most_threads, "threads")


def _grid_of(function: Any, grid: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The grid as the launch would compute it; what it raises is the candidate's."""
    if not callable(grid):
        return grid
    parameters = function.signature.parameters
    meta = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    meta.update(zip(parameters, args, strict=False))
    meta.update({name: value for name, value in kwargs.items() if name in parameters})
    return grid(meta)


def _check_grid(grid: Any, function: Any) -> None:
    """Raise for a grid that the driver would refuse."""
    name = getattr(function, "__name__", "a kernel")
    sizes: list[object] = list(cast("Sequence[object]", grid)) if isinstance(grid, tuple | list) else []
    if not 1 <= len(sizes) <= len(MAX_GRID):
        raise TypeError(f"the grid of {name} must be a tuple of one to three sizes, not {grid!r:.100}")
    for axis, size, most in zip("xyz", sizes, MAX_GRID, strict=False):
        if isinstance(size, int) and not 0 <= size <= most:
            raise ValueError(f"the grid of {name} has {size:,} blocks in {axis}; a GPU takes 0 to {most:,}")


def kernel_line(error: BaseException, functions: Sequence[Any]) -> tuple[str, int, str] | None:
    """Where in which file a Triton compile error arose, and its message; None for any other error.

    Triton counts lines from the kernel's `def`; the file's own line is found by the kernel's source.

    Args:
        error: What was raised; the innermost of chained compile errors counts.
        functions: The `JITFunction`s that may be meant.
    """
    innermost: Any = None
    link: BaseException | None = error
    while link is not None:
        if type(link).__module__.startswith("triton.") and hasattr(link, "error_message"):
            innermost = link
        link = link.__cause__
    if innermost is None:
        return None
    line = getattr(innermost.node, "lineno", None)
    cause = innermost.__cause__
    message = innermost.error_message or (f"{type(cause).__name__}: {cause}" if cause is not None else "")
    for function in functions:
        if line is not None and getattr(function, "src", None) == innermost.src:
            before_def = next((i for i, text in enumerate(function.raw_src) if text.lstrip().startswith("def ")), 0)
            return function.fn.__code__.co_filename, function.starting_line_number + before_def + line - 1, str(message)
    return "", 0, str(message)

"""From files to a `Task`: a reference file alone, or a folder with `reference.py` and `task.toml`. Nothing is executed.

`task.toml`, with everything it may hold; only what differs from the defaults need be there:

    title = "Row softmax"
    description = "Softmax over the last axis."
    precision = "ieee"                      # or "tf32": matrix arithmetic of both sides
    weight_seed = 0                         # both sides build their weights under it
    distributions = ["normal", "zeros"]     # default: normal, uniform, large, small, mixed, zeros, ones, spikes;
                                            # also original, denormal, nonfinite
    domains = ["any", "index(1000)"]        # of each input by position: any, probability, positive, index(n)
    languages = ["torch", "triton", "cuda"] # what a candidate may be written in
    allow_library_calls = true              # false: kernels of its own alone compute
    baselines = ["eager"]                   # and "compile", "cuda_graph"
    baseline = "kernel.py"                  # your own kernel (`ModelNew`), a file beside: the one to beat

    [tolerance.float32]                     # by dtype; of the others it is calibrated against float64
    rtol = 1e-4
    atol = 1e-5

    [[workload]]                            # none at all: the sizes of the file, and smaller ones on a CPU
    name = "4096x4096"
    devices = ["cuda"]                      # default: cpu and cuda
    held_out = false                        # true: judged at the last rung, never shown
    [workload.set]                          # replaces constants of reference.py before it runs
    ROWS = 4096
    COLS = 4096

A `reference.py` may define `check(inputs, output)`, for answers that are not unique: what get_inputs returned and an
answer of the reference's form; it returns True, or False or a sentence that says what is wrong.
"""

import stat
import tomllib
from pathlib import Path
from typing import Annotated, Final, Literal, cast

from pydantic import Field, StringConstraints, ValidationError

from kernelgate.tasks.model import (
    DEFAULT_DISTRIBUTIONS,
    Baseline,
    DeviceKind,
    Distribution,
    Domain,
    Dtype,
    Frozen,
    Override,
    Precision,
    Task,
    Tolerance,
    Workload,
)  # fmt: skip
from kernelgate.tasks.source import SMALL_LIMIT_BYTES, SourceError, defined_names, missing_pieces, with_overrides

REFERENCE_FILE: Final = "reference.py"
TASK_FILE: Final = "task.toml"
MAX_FILE_BYTES: Final = 128 << 10
"""Of each file of a task: reference, own kernel and candidate travel in one frame of 1 MiB."""
TINY_BYTES: Final = 256 << 10
"""Small enough for Triton's interpreter, which takes a millisecond for what a GPU does in nanoseconds."""
OWN_AND_SMALL: Final = (
    Workload(name="original", devices=("cuda",)),
    Workload(name="tiny", devices=("cpu",), shrink_to_bytes=TINY_BYTES),
    Workload(name="small", devices=("cpu",), shrink_to_bytes=SMALL_LIMIT_BYTES),
)
"""What a task has whose author named no workloads: its own sizes, and on a CPU what fits there."""


class TaskError(ValueError):
    """What is wrong with a task: one clear sentence, the message."""


class WorkloadTable(Frozen):
    """One `[[workload]]` of a `task.toml`."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]{0,39}$")]
    held_out: bool = False
    devices: tuple[DeviceKind, ...] = Field(default=("cpu", "cuda"), min_length=1)
    set: dict[str, Override] = Field(default_factory=lambda: dict[str, Override]())
    """Constant of the reference → its value."""


class TaskFile(Frozen):
    """A `task.toml`; the module's docstring shows one."""

    title: str = Field(default="", max_length=120)
    description: str = Field(default="", max_length=2000)
    precision: Precision = "ieee"
    weight_seed: int = Field(default=0, ge=0, lt=1 << 63)
    distributions: tuple[Distribution, ...] = Field(default=DEFAULT_DISTRIBUTIONS, min_length=1)
    domains: tuple[Domain, ...] = ()
    languages: tuple[Literal["torch", "triton", "cuda"], ...] = Field(default=("torch", "triton", "cuda"), min_length=1)
    allow_library_calls: bool = True
    baselines: tuple[Baseline, ...] = Field(default=("eager",), min_length=1)
    baseline: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_-]+\.py)?$")] = ""
    tolerance: dict[Dtype, Tolerance] = Field(default_factory=lambda: dict[Dtype, Tolerance]())
    workload: tuple[WorkloadTable, ...] = ()


def task_of_file(path: Path, *, name: str, group: str) -> Task:
    """The task of a reference file without `task.toml`. Raises `TaskError`."""
    return _task(name, group, reference_of(path), TaskFile(), title=title_of(path.stem), kernel=None)


def task_of_folder(folder: Path, *, name: str, group: str) -> Task:
    """The task of a folder with `reference.py`, and `task.toml` if there is one. Raises `TaskError`."""
    source = reference_of(folder / REFERENCE_FILE)
    toml = folder / TASK_FILE
    table = parse_task_file(text_of(toml)) if toml.exists() else TaskFile()
    kernel = named_kernel(folder, table)
    return _task(name, group, source, table, title=table.title or title_of(folder.name), kernel=kernel)


def parse_task_file(text: str) -> TaskFile:
    """A `task.toml`; raises `TaskError` that names the key, what is wrong with it and what is allowed."""
    try:
        table = _with_tuples(tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{TASK_FILE} is not TOML: {str(error) or type(error).__name__}") from None
    try:
        return TaskFile.model_validate(table)
    except ValidationError as error:
        raise TaskError(_sentence(error)) from None


def reference_of(path: Path) -> str:
    """Text of a reference file; raises `TaskError` that names the file and what it lacks."""
    source = text_of(path)
    problems = missing_pieces(source)
    if problems:
        raise TaskError(f"{path.name}: {'; '.join(problems)}")
    return source


def kernel_of(path: Path) -> str:
    """Text of a user's own kernel; raises `TaskError` unless it is Python that defines `ModelNew`."""
    text = text_of(path)
    try:
        names = defined_names(text)
    except SourceError as error:
        raise TaskError(f"{path.name}: {error}") from None
    if "ModelNew" not in names:
        raise TaskError(f"{path.name} defines no class ModelNew; the kernel to beat needs one")
    return text


def named_kernel(folder: Path, table: TaskFile) -> str | None:
    """Text of the kernel that a `task.toml` in the folder names; None if it names none. Raises `TaskError`."""
    if not table.baseline:
        return None
    if not (folder / table.baseline).exists():
        raise TaskError(
            f'{TASK_FILE} asks for baseline = "{table.baseline}", but there is no {table.baseline} beside it: put your '
            "kernel there, or take that line out"
        )
    return kernel_of(folder / table.baseline)


def text_of(path: Path) -> str:
    """Text of a plain file of bounded size; raises `TaskError`."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise TaskError(f"{path.name} is not a plain file")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise TaskError(f"there is no {path.name}") from None
    except OSError as error:
        raise TaskError(f"{path.name} cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise TaskError(f"{path.name} has more than {MAX_FILE_BYTES:,} bytes, the most that a task's file may have")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskError(f"{path.name} is not UTF-8 text (byte {error.start:,})") from None


def title_of(stem: str) -> str:
    """`19_Leaky_ReLU` → `Leaky ReLU`."""
    number, _, rest = stem.partition("_")
    return (rest if number.isdigit() and rest else stem).replace("_", " ")[:120]


def _task(name: str, group: str, source: str, table: TaskFile, *, title: str, kernel: str | None) -> Task:
    try:
        return Task(
            name=name,
            title=title,
            group=group,
            description=table.description,
            source=source,
            workloads=_workloads(source, table),
            tolerances=table.tolerance,
            precision=table.precision,
            weight_seed=table.weight_seed,
            distributions=table.distributions,
            domains=table.domains,
            languages=table.languages,
            allow_library_calls=table.allow_library_calls,
            baselines=table.baselines,
            baseline_kernel=kernel,
        )
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["loc"] == ("name",):
            raise TaskError(f"{name!r} is no task name: use letters, digits, '_', '.' and '-', at most 160") from None
        raise TaskError(f"{TASK_FILE}: {problem['msg'].removeprefix('Value error, ')}") from None


def _workloads(source: str, table: TaskFile) -> tuple[Workload, ...]:
    if not table.workload:
        return OWN_AND_SMALL
    if all(workload.held_out for workload in table.workload):
        raise TaskError(f"{TASK_FILE}: each workload is held_out; at least one must be public")
    for workload in table.workload:
        try:
            with_overrides(source, workload.set)
        except SourceError as error:
            raise TaskError(f"{TASK_FILE}: workload {workload.name}: {error}") from None
    return tuple(Workload(name=w.name, overrides=w.set, held_out=w.held_out, devices=w.devices) for w in table.workload)


def _with_tuples(value: object) -> object:
    """TOML has lists where a frozen model has tuples."""
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return tuple(_with_tuples(item) for item in cast("list[object]", value))
    return value


def _sentence(error: ValidationError) -> str:
    """The first problem as a sentence; how many others there are."""
    problems = error.errors()
    first = problems[0]
    location = first["loc"]
    where = ".".join(str(part) for part in location if part != "[key]")
    if location[:1] == ("workload",) and "set" in location:
        name = ".".join(str(part) for part in location[: location.index("set") + 2])
        return f"{TASK_FILE}: {name}: a constant is a finite number, a string, true, false or a list of these"
    more = f" ({len(problems) - 1} more like it)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"{TASK_FILE}: unknown key {where}; allowed are {', '.join(_allowed_beside(location))}{more}"
    if first["type"] == "missing":
        return f"{TASK_FILE}: {where} is missing{more}"
    return f"{TASK_FILE}: {where}: {first['msg']}, got {first['input']!r:.80}{more}"


def _allowed_beside(location: tuple[int | str, ...]) -> list[str]:
    """The keys of the table that an unknown key stands in."""
    if len(location) == 1:
        return list(TaskFile.model_fields)
    return list(WorkloadTable.model_fields if location[0] == "workload" else Tolerance.model_fields)

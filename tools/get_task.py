"""`get_task`: the reference and what a candidate must look like."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import BeforeValidator, JsonValue

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import (
    HIDDEN_DISTRIBUTION,
    DeviceKind,
    Frozen,
    Override,
    Precision,
    Task,
    Tolerance,
    Workload,
)
from kernelgate.tasks.qualify import Qualification, ReferenceFacts, judge_task
from kernelgate.tasks.source import halvable_constants, used_constants
from kernelgate.tools.kit import hidden
from kernelgate.tools.kit.book import Book
from kernelgate.tools.kit.envelope import Answer, NextStep, WorkloadView
from kernelgate.tools.kit.spec import BookTool

KINDS: Final[tuple[DeviceKind, ...]] = ("cpu", "cuda")
CANDIDATE_FORM: Final = (
    "candidate.py defines class ModelNew(torch.nn.Module) with the constructor and forward of Model. Name parameters "
    "as Model does, or create them in the same order, so that both get the same weights. It may use torch, Triton or "
    "inline CUDA and bring more files. It must not change its inputs. It is judged on secret inputs, on all workloads "
    "of its device"
)


class GetTaskArgs(Frozen):
    """Which task."""

    task: str
    """Name from list_tasks."""


class PublicWorkload(WorkloadView):
    """A public workload with what is known of its sizes."""

    set: dict[str, JsonValue]
    """Constants of the reference file with their values here; what the file derives from them follows."""
    sizes: str = ""
    """Where `set` is empty: how the sizes are found; they are known once a run was started."""
    inputs: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Of each input, `float32 [64, 256]`; known once a run was started on the device."""


class TaskDetails(Answer):
    """A task as the agent may see it."""

    name: str
    title: str
    digest: str
    source: str
    """The reference file: Model, get_inputs, get_init_inputs."""
    workloads: Annotated[tuple[PublicWorkload, ...], BeforeValidator(as_tuple)]
    held_out_workloads: int
    """Hidden shapes, judged at precise_time; of all devices together, like the public ones."""
    tolerances: dict[str, Tolerance]
    """Per dtype, where no bound was found: |got - want| <= atol * max(1, median |want|) + rtol * |want|."""
    bounds: dict[str, str]
    """Per public workload, once a run was started: |got - want| <= atol + rtol * |want|, for each element."""
    distributions: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    precision: Precision
    languages: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    allow_library_calls: bool = True
    """False: forward may not compute with operators of torch."""
    baselines: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    own_kernel: str | None
    """The user's kernel that a run starts from, if the task names one."""
    candidate_form: str


async def answer(book: Book, args: GetTaskArgs) -> TaskDetails:
    """The public part of a task."""
    task = await book.task(args.task)
    public = [workload for workload in task.workloads if not workload.held_out]
    facts = await book.qualification(task)
    tried = {found.workload: found for found in facts.references if found.inputs} if facts is not None else {}
    sizes = "; ".join(f"on {kind} {hidden.counted(task, kind)}" for kind in KINDS)
    inert = judge_task(task, facts).inert if facts is not None else ()
    return TaskDetails(
        summary=". ".join((f"{task.title}: {sizes}", *inert)) + ".",
        name=task.name,
        title=task.title,
        digest=task.digest,
        source=task.source,
        workloads=tuple(_shown(task, workload, tried.get(workload.name)) for workload in public),
        held_out_workloads=len(task.workloads) - len(public),
        tolerances={dtype: task.tolerance(dtype) for dtype in ("float32", "float16", "bfloat16")},
        bounds=_bounds(task, [workload.name for workload in public], facts),
        distributions=task.distributions,
        precision=task.precision,
        languages=task.languages,
        allow_library_calls=task.allow_library_calls,
        baselines=task.baselines,
        own_kernel=task.baseline_kernel,
        candidate_form=CANDIDATE_FORM + (" and on hidden shapes." if len(public) < len(task.workloads) else "."),
        next_steps=(NextStep(tool="start_run", arguments={"task": task.name}, why="open a run with a budget"),),
        ledger_head=await book.head(),
    )


def _bounds(task: Task, public: Sequence[str], facts: Qualification | None) -> dict[str, str]:
    """What qualification found for an answer's distance from the reference's, over all outputs and distributions."""
    found = judge_task(task, facts).bounds if facts is not None else ()
    told: dict[str, str] = {}
    for name in public:
        if bounds := [b for b in found if b.workload == name and b.distribution != HIDDEN_DISTRIBUTION]:
            rtols, atols = [b.rtol for b in bounds], [b.atol for b in bounds]
            told[name] = f"rtol {min(rtols):.2g} to {max(rtols):.2g}, atol {min(atols):.2g} to {max(atols):.2g}"
    return told


def _shown(task: Task, workload: Workload, found: ReferenceFacts | None) -> PublicWorkload:
    if workload.shrink_to_bytes and found is None:
        return PublicWorkload(
            name=workload.name, set={}, sizes=_how_it_shrinks(task.source, workload), devices=workload.devices
        )
    values = used_constants(task.source) | workload.overrides | (found.overrides if found is not None else {})
    return PublicWorkload(
        name=workload.name,
        set=_json(values),
        inputs=found.inputs if found is not None else (),
        devices=workload.devices,
    )


def _how_it_shrinks(source: str, workload: Workload) -> str:
    names = halvable_constants(source)
    if not names:
        return "as the file has them: no constant of it can be halved"
    kib = workload.shrink_to_bytes >> 10
    most = f"{kib >> 10} MiB" if kib >= 1024 else f"{kib} KiB"
    how = "halved, the largest first (all alike where the answer would lose what it depends on)"
    return f"{', '.join(names)}: {how}, until inputs and outputs fit {most}"


def _json(overrides: Mapping[str, Override]) -> dict[str, JsonValue]:
    return {name: _plain(value) for name, value in overrides.items()}


def _plain(value: Override) -> JsonValue:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


TOOL: Final = BookTool(
    name="get_task",
    title="Read a task",
    description=(
        "The reference source, public workloads with their sizes, tolerances and precision policy of one task, and "
        "what a candidate must look like. Free. Next: start_run."
    ),
    args=GetTaskArgs,
    report=TaskDetails,
    read_only=True,
    answer=answer,
)

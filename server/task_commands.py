"""`kernelgate tasks list|check|add|remove`."""

import sys
from pathlib import Path

import anyio
from rich.console import Console
from rich.markup import escape

from kernelgate.budget.model import Rung, Verdict
from kernelgate.server.environment import why_on_cpu
from kernelgate.server.measure import judged, qualify
from kernelgate.server.services import Services, open_catalogue, open_services
from kernelgate.server.settings import Settings
from kernelgate.server.tables import tasks_table
from kernelgate.server.trouble import Trouble, guarded
from kernelgate.tasks.adding import add_task, remove_task
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import ENTRY_FILE, Task
from kernelgate.tasks.taskfile import TaskError
from kernelgate.tools.kit.wire import DeviceRef


def list_tasks(settings: Settings, group: str) -> int:
    """Print the catalogue."""

    def listing() -> int:
        entries = [entry for entry in open_catalogue(settings).entries() if group in ("", entry.group)]
        console = Console(soft_wrap=True, highlight=False)
        console.print(tasks_table(entries))
        usable = sum(entry.unavailable is None for entry in entries)
        console.print(f"{usable} of {len(entries)} tasks can be run here.")
        return 0

    return guarded(listing)


def check_tasks(settings: Settings, names: tuple[str, ...]) -> int:
    """Qualify tasks on this device; 1 if one of them is refused."""
    return guarded(lambda: anyio.run(_check, settings, names))


async def _check(settings: Settings, names: tuple[str, ...]) -> int:
    console = Console(soft_wrap=True, highlight=False)
    status = 0
    async with open_services(settings) as services:
        device = services.device(settings.device)
        if why := why_on_cpu(settings.device):
            console.print(f"[yellow]note[/]     {escape(why)}")
        for name in names:
            task = named(services.catalogue, name)
            with console.status(f"checking {name} on {device.kind}"):
                fitness = await qualify(services, task, device, services.environment(device, task))
            if fitness.fit:
                left_out = f"; left out: {'; '.join(fitness.left_out)}" if fitness.left_out else ""
                shapes = len(task.workloads_on(device.kind, held_out=True))
                tried = f"{shapes} workloads, distributions {', '.join(fitness.distributions)}"
                console.print(
                    f"[green]fit[/]      {name} on {device.kind}: {tried}; mutant answers fail{escape(left_out)}"
                )
                for note in fitness.notes:
                    console.print(f"[yellow]note[/]     {escape(note)}")
                status = max(status, await _check_own_kernel(services, fitness.applied_to(task), device, console))
            else:
                status = 1
                console.print(f"[red]refused[/]  {name}: {escape('; '.join(fitness.problems))}")
    return status


def named(catalogue: Catalogue, name: str) -> Task:
    """A task by its name; raises `Trouble`, in the words of the command line."""
    try:
        return catalogue.task(name)
    except TaskError as error:
        raise Trouble(_in_commands(str(error))) from None


def _in_commands(text: str) -> str:
    """A sentence of the catalogue in the words of its reader: agents know a tool, people a command."""
    return text.replace("list_tasks", "`kernelgate tasks list`")


async def _check_own_kernel(services: Services, task: Task, device: DeviceRef, console: Console) -> int:
    """Whether the kernel that a task starts from is right at all; 1 if not."""
    if task.baseline_kernel is None:
        return 0
    files = {ENTRY_FILE: task.baseline_kernel}
    report = await judged(services, task, device, files, Rung.compile)
    if report.verdict in (Verdict.built, Verdict.needs_device):
        report = await judged(services, task, device, files, Rung.check)
    if report.verdict is Verdict.correct:
        console.print(f"[green]right[/]    its own kernel: {escape(report.summary)}")
        return 0
    word = "forbidden[/] " if report.verdict is Verdict.forbidden else "wrong[/]    "
    console.print(f"[red]{word}its own kernel: {escape(report.summary)}")
    return 1


def add(settings: Settings, path: Path, kernel: Path | None, *, replace: bool) -> int:
    """Copy a task into the data folder, and say under which name it is found and what it still needs."""

    def adding() -> int:
        target = add_task(path, settings.own_tasks, kernel, replace=replace)
        entry = next(entry for entry in open_catalogue(settings).entries() if entry.path == target)
        console = Console(soft_wrap=True, highlight=False, markup=False)
        console.print(
            f"Task {entry.name} is in {target}, a copy: later edits of {path} change nothing, until it is added again "
            "with --replace."
        )
        if entry.unavailable:
            console.print(
                f"It cannot be run yet: it {entry.unavailable}; install that for {sys.executable}.",
                style="yellow",
            )
        console.print(
            f"Check it with `kernelgate tasks check {entry.name}`; agents see it in list_tasks the next time their "
            "server starts."
        )
        return 0

    return guarded(adding)


def remove(settings: Settings, name: str) -> int:
    """Delete a task from the data folder."""

    def removing() -> int:
        try:
            place = remove_task(open_catalogue(settings), name, settings.own_tasks)
        except TaskError as error:
            raise Trouble(_in_commands(str(error))) from None
        Console(soft_wrap=True, highlight=False, markup=False).print(
            f"Task {name} is removed from {place.parent}; runs of it keep the copy that they began with."
        )
        return 0

    return guarded(removing)

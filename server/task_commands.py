"""`kernelgate tasks list|check|add`."""

from pathlib import Path

import anyio
from rich.console import Console

from kernelgate.server.measure import qualify
from kernelgate.server.services import open_catalogue, open_services
from kernelgate.server.settings import Settings
from kernelgate.server.tables import tasks_table
from kernelgate.server.trouble import guarded
from kernelgate.tasks.catalogue import add_task


def list_tasks(settings: Settings, group: str) -> int:
    """Print the catalogue."""

    def listing() -> int:
        entries = [entry for entry in open_catalogue(settings).entries() if group in ("", entry.group)]
        Console().print(tasks_table(entries))
        usable = sum(entry.unavailable is None for entry in entries)
        Console().print(f"{usable} of {len(entries)} tasks can be run here.")
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
        for name in names:
            task = services.catalogue.task(name)
            with console.status(f"checking {name} on {device.kind}"):
                fitness = await qualify(services, task, device, services.environment(device, task))
            if fitness.fit:
                left_out = f" (without {'; '.join(fitness.left_out)})" if fitness.left_out else ""
                console.print(f"[green]fit[/]      {name}{left_out}")
            else:
                status = 1
                console.print(f"[red]refused[/]  {name}: {'; '.join(fitness.problems)}")
    return status


def add(settings: Settings, path: Path, kernel: Path | None) -> int:
    """Copy a task into the data folder."""

    def adding() -> int:
        target = add_task(path, settings.own_tasks, kernel)
        Console(soft_wrap=True).print(
            f"Task {target.name} is in {target}. Check it with `kernelgate tasks check {target.name}`; agents see "
            "it in list_tasks the next time their server starts."
        )
        return 0

    return guarded(adding)

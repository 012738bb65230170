"""`kernelgate doctor`: the host as it is, and the worker asked how it confines candidates."""

import anyio
from rich.console import Console

from kernelgate.server.doctor import examine, render
from kernelgate.server.gpus import NoSuchDevice
from kernelgate.server.preflight import hello_of
from kernelgate.server.services import open_catalogue
from kernelgate.server.settings import Settings
from kernelgate.server.trouble import guarded
from kernelgate.tools.kit.runner import SupervisorUnavailable
from kernelgate.tools.kit.wire import Hello


def run_doctor(settings: Settings, *, as_json: bool) -> int:
    """Print the report; 1 if candidates cannot be judged here at all, or not on the device of the settings."""

    def examining() -> int:
        console = Console()
        hello: Hello | None = None
        why = not_wished = ""
        try:
            with console.status("starting a worker, to see how it confines candidates"):
                try:
                    hello = anyio.run(hello_of, settings)
                except NoSuchDevice as error:
                    not_wished = str(error)
                    hello = anyio.run(hello_of, settings.model_copy(update={"device": "cpu"}))
        except (OSError, SupervisorUnavailable) as error:
            why = str(error)
        report = examine(settings.data_dir, settings.ledger, open_catalogue(settings), hello)
        if not_wished:
            report = report.model_copy(
                update={"cannot": (*report.cannot, f"use the device of the settings: {not_wished}")}
            )
        if as_json:
            print(report.model_dump_json(indent=2))  # noqa: T201 -- the command's output is JSON
        else:
            render(report, console)
            if why:
                console.print(f"The worker did not start: {why}")
        return 0 if report.usable and hello is not None and not not_wished else 1

    return guarded(examining)

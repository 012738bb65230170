"""Do the settings fit this host? Asked before a command starts: a mistake is a sentence then, and no late error."""

import anyio

from kernelgate.server.environment import device_of
from kernelgate.server.policy import binds_nobody
from kernelgate.server.services import open_catalogue
from kernelgate.server.settings import Settings
from kernelgate.server.tokens import Tokens
from kernelgate.server.trouble import Trouble
from kernelgate.tools.kit.runner import SupervisorRunner, SupervisorUnavailable
from kernelgate.tools.kit.wire import Hello


def require(settings: Settings) -> None:
    """Raises `NoSuchDevice`, `TaskError` or `Trouble` where a device, a folder of tasks or a checkout is not here.

    A cap of an account that nobody has is a mistake too.
    """
    if settings.device not in ("", "cpu"):  # else there is always one, and NVML is not needed yet
        device_of(settings.device, threads=settings.cpu_threads, target=settings.target)
    open_catalogue(settings)
    accounts = {token.account for token in Tokens(settings.data_dir).all()} if settings.policy.accounts else set[str]()
    if nobody := binds_nobody(settings.policy, accounts):
        raise Trouble(nobody)


def require_walls(settings: Settings) -> None:
    """Start a worker to see what holds candidates here; raises `Trouble` where anything is missing. Takes seconds."""
    try:
        lacking = anyio.run(hello_of, settings).why_not_confined
    except SupervisorUnavailable as error:
        lacking = f"full confinement is required, and the worker that would tell did not start: {error}"
    if lacking:
        raise Trouble(f"{lacking}; `kernelgate doctor` says more, without --require-confinement it would run")


async def hello_of(settings: Settings) -> Hello:
    """What a worker says when it starts, and ends again; raises `SupervisorUnavailable`."""
    device = device_of(settings.device, threads=settings.cpu_threads, target=settings.target)
    runner = SupervisorRunner(device, settings.state_dir)
    try:
        return await runner.hello()
    finally:
        await runner.close()


def make_data_folder(settings: Settings) -> None:
    """Make the data folder if it is not there; raises `Trouble` where it cannot be written."""
    folder = settings.data_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if settings.log.is_fifo():  # opening it would wait for a reader
            raise Trouble(f"the log {settings.log} is a pipe, no file; remove it or name another folder with --data")
        settings.log.open("a", encoding="utf-8").close()
    except OSError as error:
        raise Trouble(f"the data folder {folder} cannot be used: {error.strerror}; name another with --data") from None

"""Do the settings fit this host? Asked before a command starts: a mistake is a sentence then, and no late error."""

import importlib
from typing import Any

from kernelgate.server.environment import device_of
from kernelgate.server.services import open_catalogue
from kernelgate.server.settings import Settings
from kernelgate.server.trouble import Trouble


def require(settings: Settings) -> None:
    """Raises `NoSuchDevice`, `TaskError` or `Trouble` where a device, a folder of tasks or a checkout is not here."""
    if settings.device not in ("", "cpu"):
        _require_gpu(settings)
    open_catalogue(settings)


def _require_gpu(settings: Settings) -> None:
    nvml: Any = importlib.import_module("pynvml")  # as a value: it is wanted for its exception, and has no types
    try:
        device_of(settings.device, threads=settings.cpu_threads, target=settings.target)
    except nvml.NVMLError as error:
        raise Trouble(f"the GPU driver does not answer ({error}); `kernelgate doctor` says more, cpu works") from None


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

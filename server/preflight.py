"""Do the settings fit this host? Asked before a command starts: a mistake is a sentence then, and no late error."""

from kernelgate.server.environment import device_of
from kernelgate.server.services import open_catalogue
from kernelgate.server.settings import Settings
from kernelgate.server.trouble import Trouble


def require(settings: Settings) -> None:
    """Raises `NoSuchDevice` or `TaskError` where the device, a folder of tasks or the checkout is not here."""
    if settings.device:
        device_of(settings.device, threads=settings.cpu_threads, target=settings.target)
    open_catalogue(settings)


def make_data_folder(settings: Settings) -> None:
    """Make the data folder if it is not there; raises `Trouble` where it cannot be written."""
    folder = settings.data_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        settings.log.open("a", encoding="utf-8").close()
    except OSError as error:
        raise Trouble(f"the data folder {folder} cannot be used: {error.strerror}; name another with --data") from None

"""Whether a profile can read the counters of this host's GPUs, and what would open them."""

import re
from pathlib import Path
from typing import Final

from kernelgate.server.installed import package_version
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.counter_access import OPENED, counters_folder, how_to_install

DRIVER_PARAMETERS: Final = Path("/proc/driver/nvidia/params")


class CounterAccess(Frozen):
    """What `profile` finds here."""

    library: str
    """Version of cupti-python, or `absent`."""
    administrators_only: bool
    """The driver keeps counters from users without special rights."""
    folder: Path
    """Where cupti-python may lie apart from this environment."""

    @property
    def found(self) -> str:
        """Both, in short."""
        opened = "for administrators only" if self.administrators_only else "open to this user"
        return f"cupti-python {self.library}, counters {opened}"

    @property
    def advice(self) -> str:
        """What to do; empty where counters can be read."""
        if self.library == "absent":
            # torch asks for the CUPTI of its own CUDA by the number, so pip refuses both in one environment.
            return f"profile works without them and tells less: {how_to_install(self.folder)}"
        if self.administrators_only:
            return (
                "profile works without them and tells less: load NVIDIA's module with "
                f"{OPENED} (a file in /etc/modprobe.d, then a restart)"
            )
        return ""


def read_access(data_dir: Path, parameters: Path = DRIVER_PARAMETERS) -> CounterAccess:
    """Look for the library and at the driver's parameters; opens no device."""
    folder = counters_folder(data_dir)
    here = package_version("cupti-python")
    found = sorted(path.name for path in folder.glob("cupti_python-*.dist-info"))
    apart = found[-1].removeprefix("cupti_python-").removesuffix(".dist-info") if found else "absent"
    try:
        said = parameters.read_text(encoding="utf-8")
    except OSError:
        said = ""
    only = re.search(r"^RmProfilingAdminOnly:\s*1\b", said, re.MULTILINE) is not None
    return CounterAccess(library=apart if here == "absent" else here, administrators_only=only, folder=folder)

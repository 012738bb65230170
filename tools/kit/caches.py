"""Where the compile caches of one source lie. Pure: the worker makes them, the server asks whether they are there."""

import re
from pathlib import Path

from kernelgate.tools.kit.wire import DeviceRef


def cache_folder(state_dir: str | Path, device: DeviceRef, digest: str) -> Path:
    """The folder of a candidate with this digest, or of the referee where it is empty, on one device.

    Each device has a user of its own, who may not write what another's has written.
    """
    device_name, name = (re.sub(r"[^0-9A-Za-z_-]", "_", text)[:64] for text in (device.uid, digest or "referee"))
    return Path(state_dir, "cache", device_name, name)

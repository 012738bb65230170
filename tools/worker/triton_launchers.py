"""What Triton has a C compiler make before a first launch, made ahead: 0.4 s each that a lease need not pay.

Two things: the bridge to the driver, the same for all kernels, and in some versions (3.6) a launcher for each signature
of a kernel. Both end up in the cache that `TRITON_CACHE_DIR` names, where the launch finds them.
"""

import contextlib
import importlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

_BACKEND: Final = "triton.backends.nvidia.driver"


def build_bridge(cache: Path) -> str:
    """Build Triton's bridge to the driver into a cache; starts no CUDA. Why it could not be built, or nothing.

    Without it a candidate builds its own, and says itself what it lacks: a C compiler, the driver's library.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = str(cache)
    try:
        importlib.import_module(_BACKEND).CudaUtils()
    except Exception as error:  # noqa: BLE001  a version of Triton without it, no compiler, no driver: all the same
        return f"{type(error).__name__}: {error}"
    finally:
        del os.environ["TRITON_CACHE_DIR"]
        if before is not None:
            os.environ["TRITON_CACHE_DIR"] = before
    return ""


def copy_bridge(shared: Path, cache: Path, uid: int | None) -> None:
    """Begin a new, empty cache with what lies in the shared one. Never into a cache that a candidate has written."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copytree(shared, cache, dirs_exist_ok=True)
    if uid is not None:
        for folder, _, files in os.walk(cache):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                os.chown(path, uid, uid)


def build_launchers(kernels: Iterable[Any]) -> None:
    """Build the launchers of compiled kernels, in a version of Triton that compiles them.

    One that cannot be built here is built by the first launch, or fails there with its own message.
    """
    backend: Any = importlib.import_module(_BACKEND)
    if not hasattr(backend, "make_launcher"):
        return
    for kernel in kernels:
        with contextlib.suppress(Exception):
            backend.CudaLauncher(kernel.src, kernel.metadata)

"""Files that are there whole or not at all, for whoever reads at the same moment."""

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o600) -> Generator[IO[str]]:
    """What is written takes the place of `path` in one step at the end, and leaves nothing where that fails.

    Args:
        path: the file; its folder exists.
        mode: its permissions.

    Raises:
        OSError: it cannot be written; `path` is as it was.
    """
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=".kernelgate.", delete=False
    ) as stream:
        try:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            os.chmod(stream.name, mode)
            os.replace(stream.name, path)
        except BaseException:
            os.unlink(stream.name)
            raise

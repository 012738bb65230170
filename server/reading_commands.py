"""`kernelgate export` and `datasette`: handing the book to other tools."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelgate.budget.connection import log_beside, open_for_reading
from kernelgate.budget.datasette import metadata
from kernelgate.budget.export import Blobs, export
from kernelgate.server.trouble import Trouble, guarded
from kernelgate.server.whole_files import replacing


def export_book(path: Path, names: Sequence[str], output: Path | None, blobs: Blobs) -> int:
    """Write a book as lines of JSON, to stdout or a file."""

    def exporting() -> int:
        written = write(export(path, names, blobs=blobs), output)
        if output is not None:
            sys.stderr.write(f"{written} rows of {path} are in {output}.\n")
        return 0

    return guarded(exporting)


def write_metadata(path: Path, output: Path | None) -> int:
    """Write what Datasette needs to show a book as a site, to stdout or a file, and say how to start it."""

    def writing() -> int:
        in_use = log_beside(path).exists()  # looked for first: reading a book may leave an empty one
        open_for_reading(path).close()
        write([json.dumps(metadata(path.stem), ensure_ascii=False, indent=2)], output)
        if output is not None:
            # Immutable means: SQLite looks at no lock and no log of changes beside the file.
            how = f"datasette {'' if in_use else '-i '}{path} -m {output}"
            beside = "; without -i, which would not look into the log beside it" if in_use else ""
            sys.stderr.write(f"Start the site with: {how}{beside}\n")
        return 0

    return guarded(writing)


def write(lines: Iterable[str], output: Path | None) -> int:
    """Write lines, and return how many; a file is there whole or not at all.

    Raises:
        Trouble: the place cannot be written.
    """
    if output is None:
        return _print(lines)
    try:
        with replacing(output) as stream:
            return sum(1 for line in lines if stream.write(f"{line}\n"))
    except OSError as error:
        raise Trouble(
            f"{output} cannot be written ({error.strerror}): name a file in a folder that exists and has space with -o"
        ) from error


def _print(lines: Iterable[str]) -> int:
    written = 0
    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
            written += 1
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # that is a reader, such as `head`, who has enough
            said = f"the output cannot be written ({error.strerror}): free some space, or write elsewhere"
            raise Trouble(said) from error
    return written

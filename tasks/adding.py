"""A user's own tasks: copied into a folder of theirs, replaced there, and removed again. Executes nothing."""

import shutil
import tempfile
from pathlib import Path
from typing import Final

from kernelgate.tasks.catalogue import BUNDLED_GROUP, Catalogue
from kernelgate.tasks.source import SourceError, defined_names
from kernelgate.tasks.taskfile import (
    REFERENCE_FILE,
    TASK_FILE,
    TaskError,
    kernel_of,
    named_kernel,
    parse_task_file,
    reference_of,
    task_of_folder,
    text_of,
)  # fmt: skip

BASELINE_FILE: Final = "kernel.py"


def add_task(path: Path, into: Path, baseline_kernel: Path | None = None, *, replace: bool = False) -> Path:
    """Copy a reference file or a task's folder to `into/<name>/` and return that folder.

    Of a folder only `reference.py`, `task.toml` and the kernel that it names are taken. `baseline_kernel` becomes
    `kernel.py` and the task's `baseline`. With `replace`, a task of that name in `into` gives way. The files are judged
    first: raises `TaskError` if they are no task, the name is taken, or `into` cannot be written.
    """
    name = path.resolve().stem if path.is_file() else path.resolve().name
    files = _files_to_add(path)
    if baseline_kernel is not None:
        kernel = kernel_of(baseline_kernel)
        table = files.get(TASK_FILE, "")
        if parse_task_file(table).baseline:
            raise TaskError(f"the task's {TASK_FILE} names a baseline already; remove it there or leave out the kernel")
        files[TASK_FILE] = f'baseline = "{BASELINE_FILE}"\n{table}'
        files[BASELINE_FILE] = kernel
    target = into / name
    try:
        into.mkdir(parents=True, exist_ok=True)
        old = [place for place in (target, into / f"{name}.py") if place.exists()]
        if old and not replace:
            raise TaskError(f"{into} has a task {name} already; put yours in its place with --replace, or rename it")
        with tempfile.TemporaryDirectory(prefix=".adding-", dir=into) as scratch:
            folder = Path(scratch) / name
            folder.mkdir()
            for file_name, text in files.items():
                (folder / file_name).write_text(text, encoding="utf-8")
            task_of_folder(folder, name=name, group=into.name)
            for place in old:
                place.rename(Path(scratch) / f"old-{place.name}")
            shutil.move(folder, target)
    except OSError as error:
        raise TaskError(f"cannot write to {into}: {error.strerror}") from None
    return target


def remove_task(catalogue: Catalogue, name: str, own: Path) -> Path:
    """Delete a task that lies in the folder `own`; returns where it was.

    Raises `TaskError` if there is none of that name, it lies elsewhere, or it cannot be deleted.
    """
    entry = catalogue.entry(name)
    if entry.path.parent != own:
        place = "comes with kernelgate" if entry.group == BUNDLED_GROUP else f"lies in {entry.path.parent}"
        yours = [other.name for other in catalogue.entries() if other.path.parent == own]
        raise TaskError(
            f"{name} {place} and stays; only what `kernelgate tasks add` put into {own} can be removed: "
            f"{', '.join(yours) or 'nothing yet'}"
        )
    try:
        if entry.path.is_dir() and not entry.path.is_symlink():
            shutil.rmtree(entry.path)
        else:
            entry.path.unlink()
    except OSError as error:
        raise TaskError(f"{entry.path} cannot be removed: {error.strerror}") from None
    return entry.path


def _files_to_add(path: Path) -> dict[str, str]:
    if not path.is_dir():
        return {REFERENCE_FILE: _single_reference(path)}
    files = {REFERENCE_FILE: reference_of(path / REFERENCE_FILE)}
    if (path / TASK_FILE).exists():
        files[TASK_FILE] = text_of(path / TASK_FILE)
        table = parse_task_file(files[TASK_FILE])
        kernel = named_kernel(path, table)
        if kernel is not None:
            files[table.baseline] = kernel
    return files


def _single_reference(path: Path) -> str:
    try:
        return reference_of(path)
    except TaskError as error:
        if not _is_kernel(path):
            raise
        raise TaskError(
            f"{error}; it defines ModelNew, so it is a kernel: add the reference that it answers to, and this file "
            f"with --kernel {path.name}"
        ) from None


def _is_kernel(path: Path) -> bool:
    try:
        return "ModelNew" in defined_names(text_of(path))
    except SourceError:
        return False

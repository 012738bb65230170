"""Finds tasks: the bundled ones, a user's folders, a KernelBench checkout. Parses their files, executes nothing."""

import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from kernelgate.tasks.model import Task
from kernelgate.tasks.source import imported_modules
from kernelgate.tasks.taskfile import (
    REFERENCE_FILE,
    TASK_FILE,
    TaskError,
    task_of_file,
    task_of_folder,
    title_of,
)  # fmt: skip

BUNDLED_GROUP: Final = "bundled"
KERNELBENCH_GROUP: Final = "kernelbench"
_LEVEL = re.compile(r"level\d+")
_UNPRINTABLE = re.compile(r"[^A-Za-z0-9_./ -]")
"""File names reach the agent; what no task name may hold is shown as `?`."""
_NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class TaskEntry:
    """One line of the catalogue: a task, or why it cannot be used. Exactly one of the last two is set."""

    name: str
    title: str
    group: str
    path: Path
    """The reference file, or the folder of the task."""
    task: Task | None
    unavailable: str | None
    """`needs einops`, or the sentence that says what is wrong with its files."""


@dataclass(frozen=True)
class _Place:
    """Where a task lies and what it is called; its files are not read yet."""

    name: str
    group: str
    path: Path
    problem: str = ""
    """Why the place itself cannot be read."""


class Catalogue:
    """The tasks of this installation. Files are read when asked for, and again when they have changed.

    A user's task is called like its file or folder; where that name is taken, `<group>/<name>`.
    """

    def __init__(self, folders: Sequence[Path] = (), kernelbench: Path | None = None) -> None:
        """Tasks from `folders` (each a folder of tasks, one task, or a checkout) and from a KernelBench checkout.

        Raises `TaskError` if one of them does not exist or the checkout has no levels.
        """
        for path in folders:
            if not path.exists():
                raise TaskError(f"there is no task folder {path}")
        if kernelbench is not None and _checkout(kernelbench) is None:
            raise TaskError(f"{kernelbench} is no KernelBench checkout: it has no KernelBench/level1 with .py files")
        self._folders = tuple(folders) if kernelbench is None else (*folders, kernelbench)
        self._read: dict[_Place, tuple[object, TaskEntry]] = {}
        self._installed: dict[str, bool] = {}

    def entries(self) -> tuple[TaskEntry, ...]:
        """All tasks, also those that cannot be used: bundled, then by folder in the order given."""
        return tuple(self._entry(place) for place in self._places())

    def names(self) -> tuple[str, ...]:
        """Names of all tasks, without reading their files."""
        return tuple(place.name for place in self._places())

    def entry(self, name: str) -> TaskEntry:
        """The entry of that name; only its own files are read. Raises `TaskError` that offers similar names."""
        places = {place.name: place for place in self._places()}
        if name not in places:
            close = get_close_matches(name, places, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else "list_tasks shows what there is"
            raise TaskError(f"there is no task {name!r}; {hint}")
        return self._entry(places[name])

    def task(self, name: str) -> Task:
        """The task of that name; raises `TaskError` if there is none or it cannot be used."""
        entry = self.entry(name)
        if entry.task is None:
            raise TaskError(f"task {name} is unavailable: {entry.unavailable}")
        return entry.task

    def _places(self) -> Iterator[_Place]:
        taken: set[str] = set()
        bundled = Path(__file__).parent
        sources = [_folder_places(bundled, BUNDLED_GROUP), *(_places_in(folder) for folder in self._folders)]
        for source in sources:
            for place in source:
                plain, group = _UNPRINTABLE.sub("?", place.name), _UNPRINTABLE.sub("?", place.group)
                name, count = plain, 1
                while name in taken:
                    name = f"{group}/{plain}" + (f"-{count}" if count > 1 else "")
                    count += 1
                taken.add(name)
                yield _Place(name, group, place.path, place.problem)

    def _entry(self, place: _Place) -> TaskEntry:
        state = _state(place.path)
        known = self._read.get(place)
        if known is not None and known[0] == state:
            return known[1]
        entry = self._fresh_entry(place)
        self._read[place] = (state, entry)
        return entry

    def _fresh_entry(self, place: _Place) -> TaskEntry:
        try:
            task = self._usable_task(place)
        except TaskError as error:
            title = title_of(place.name.rpartition("/")[2])
            return TaskEntry(place.name, title, place.group, place.path, None, str(error))
        return TaskEntry(place.name, task.title, place.group, place.path, task, None)

    def _usable_task(self, place: _Place) -> Task:
        if place.problem:
            raise TaskError(place.problem)
        read = task_of_folder if place.path.is_dir() else task_of_file
        task = read(place.path, name=place.name, group=place.group)
        missing = [name for name in imported_modules(task.source) if not self._is_installed(name)]
        if missing:
            raise TaskError(f"needs {', '.join(missing)}")
        return task

    def _is_installed(self, module: str) -> bool:
        if module not in self._installed:
            try:
                self._installed[module] = importlib.util.find_spec(module) is not None
            except ValueError:  # a module that is loaded but has no spec, such as __main__
                self._installed[module] = True
        return self._installed[module]


def _places_in(path: Path) -> Iterator[_Place]:
    """The tasks of a path that a user gave: a checkout, a single task, or a folder of tasks."""
    checkout = _checkout(path)
    if checkout is not None:
        yield from _checkout_places(checkout)
    elif path.is_file():
        yield _Place(path.stem, path.resolve().parent.name, path)
    elif _is_task_folder(path):
        yield _Place(path.resolve().name, path.resolve().parent.name, path)
    else:
        yield from _folder_places(path, path.resolve().name, files=True)


def _folder_places(folder: Path, group: str, *, files: bool = False) -> Iterator[_Place]:
    """Folders that hold a task and, with `files`, reference files, in order of name."""
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        yield _Place(folder.name, group, folder, f"the folder cannot be read: {error.strerror}")
        return
    for child in children:
        if child.name.startswith((".", "_")):
            continue
        if _is_task_folder(child):
            yield _Place(child.name, group, child)
        elif files and child.suffix == ".py":
            yield _Place(child.stem, group, child)


def _checkout_places(root: Path) -> Iterator[_Place]:
    for level in sorted(root.iterdir(), key=_natural):
        if _LEVEL.fullmatch(level.name):
            group = f"{KERNELBENCH_GROUP}/{level.name}"
            for path in sorted(level.glob("*.py"), key=_natural):
                if not path.name.startswith((".", "_")):
                    yield _Place(f"{group}/{path.stem}", group, path)


def _checkout(path: Path) -> Path | None:
    """The folder with `level1`, `level2`, … of a KernelBench checkout, or None if it is none."""
    for root in (path / "KernelBench", path):
        if any((root / "level1").glob("*.py")):
            return root
    return None


def _is_task_folder(path: Path) -> bool:
    return any((path / name).is_file() for name in (TASK_FILE, REFERENCE_FILE))


def _natural(path: Path) -> list[tuple[int, str]]:
    """Orders `2_b` before `10_a`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBERS.split(path.name)]


def _state(path: Path) -> object:
    """Changes whenever a file of the task does: times and sizes."""
    try:
        files = sorted(entry.path for entry in os.scandir(path)) if path.is_dir() else [path]
        stats = [(str(file), os.stat(file)) for file in files]
    except OSError:
        return None
    return tuple((name, info.st_mtime_ns, info.st_size) for name, info in stats)

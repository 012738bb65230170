"""What the generators of streams share: a candidate with what it is meant to be, and the order in which an agent comes.

The text of a candidate is a template of ours with parameters, or an earlier one with a few words exchanged.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import Template
from typing import Final, Literal

SEED: Final = 9
"""Of the places at which strays come; with a task's name before it."""
LATEST: Final = 7
"""A stray follows its parent after at most so many others."""

Meant = Literal["unbuilt", "wrong", "raises", "slow", "right", "near"]
"""`unbuilt`: does not build for sm_90. `wrong` and `raises`: when called. All others are right; `near` are neighbours
of what should be best, `slow` take several times as long as it. Only a GPU tells the last three from each other."""
Shown = Literal["smallest", "odd", "hidden", "precision"]
"""Where it shows what it is. `smallest`: in a check on the CPU device. `odd`: at sizes that no block divides. `hidden`:
at the hidden width of a GPU. `precision`: where products of matrices are rounded as tensor cores round them."""


@dataclass(frozen=True)
class Idea:
    """A candidate as the generator knows it."""

    name: str
    parent: str
    source: str
    note: str
    meant: Meant = "right"
    shown: Shown = "smallest"
    repeats: str = ""
    """Name of the candidate of which it is the same again, perhaps in other words."""
    stray: bool = False

    @property
    def is_right(self) -> bool:
        return self.meant in ("slow", "right", "near")


class Notebook:
    """Collects the ideas of one stream: the main line in its order, strays beside it."""

    def __init__(self, task: str) -> None:
        self.task = task
        self._main: list[Idea] = []
        self._strays: list[Idea] = []

    def add(self, name: str, source: str, note: str, *, parent: str = "", **more: str) -> None:
        """The next idea of the main line."""
        self._main.append(self._idea(name, source, note, parent, more))

    def stray(self, name: str, source: str, note: str, *, parent: str, **more: str) -> None:
        """One that comes some time after its parent, and that may lead nowhere."""
        self._strays.append(replace(self._idea(name, source, note, parent, more), stray=True))

    def edited(self, parent: str, *words: tuple[str, str], **values: object) -> str:
        """The source of an earlier idea with words exchanged, each of which must stand in it."""
        text = self[parent].source
        for old, new in words:
            if old not in text:
                raise ValueError(f"{self.task}: {parent} has no {old!r}")
            text = text.replace(old, new)
        return Template(text).safe_substitute({name: str(value) for name, value in values.items()})

    def __getitem__(self, name: str) -> Idea:
        return next(idea for idea in (*self._main, *self._strays) if idea.name == name)

    def ideas(self) -> list[Idea]:
        """All of them in the order of the stream."""
        dice = random.Random(f"{self.task} {SEED}")
        order = list(self._main)
        for stray in self._strays:
            after = next(place for place, idea in enumerate(order) if idea.name == stray.parent) + 1
            order.insert(dice.randint(after, min(len(order), after + LATEST)), stray)
        return order

    def _idea(self, name: str, source: str, note: str, parent: str, more: Mapping[str, str]) -> Idea:
        known = {idea.name for idea in (*self._main, *self._strays)}
        if name in known or (parent and parent not in known):
            raise ValueError(f"{self.task}: {name} is there already, or its parent {parent!r} is not")
        return Idea(name=name, parent=parent, source=source, note=note, **more)


def maker(template: str, **defaults: object) -> Callable[..., str]:
    """A function that fills a template; a parameter that is not given has its default."""

    def make(**values: object) -> str:
        unknown = set(values) - set(defaults)
        if unknown:
            raise ValueError(f"no parameters of the template: {sorted(unknown)}")
        return Template(template.lstrip("\n")).substitute(defaults | values)

    return make


def ids_of(ideas: Sequence[Idea]) -> dict[str, str]:
    """Name → id. An id says nothing of what a candidate is meant to be."""
    return {idea.name: f"c{number:02}" for number, idea in enumerate(ideas, 1)}


def as_jsonl(ideas: Sequence[Idea]) -> str:
    """The stream's file: one JSON object a line."""
    ids = ids_of(ideas)
    lines = []
    for idea in ideas:
        parent = {"parent": ids[idea.parent]} if idea.parent else {}
        lines.append({"id": ids[idea.name], **parent, "source": idea.source, "note": idea.note})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

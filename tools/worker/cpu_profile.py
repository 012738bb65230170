"""How a candidate's process profiles itself on the CPU: calls without torch's profiler for their time, and with it.

All that it reports is a claim: the candidate's code runs in the same process.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import torch

from kernelgate.tools.kit.evidence import Operator
from kernelgate.tools.kit.statistics import median
from kernelgate.tools.worker import protocol
from kernelgate.tools.worker.timing import Arguments, dropped, time_calls

_OF_THE_PROFILER: Final = "profiler::"
_CONVERTS: Final = "aten::copy_"
"""By this each detour through float64 begins: a reduction that is given a type copies its input too."""
_MOST_TYPED: Final = 20_000
"""Operators of the profiled calls: types of more would cost a second, and it is their number that holds a call back."""
_FLOAT64: Final = "double"


class Span(NamedTuple):
    """One run of an operator, ns."""

    name: str
    thread: int
    start: int
    length: int


def profile_calls(
    forward: Callable[..., Any], pool: Mapping[int, Arguments], order: Sequence[int], before: Callable[[], None]
) -> protocol.Profiled:
    """Time by operator over some calls, and of a call without the profiler, which lengthens short operators."""
    samples = time_calls(forward, pool, order, before, dropped)
    # Not torch.profiler, whose start imports the compiler (1–3 s).
    profiler: Any = torch.autograd.profiler.profile(use_cpu=True)
    with profiler:
        # Dropped: a copy of ours would be told as its own.
        time_calls(forward, pool, order, before, dropped)
    # Not its own sums, key_averages: of 50,000 operators they took 2.7 s, which the candidate pays, and this 0.1 s.
    spans = (
        Span(str(event.name()), int(event.start_thread_id()), int(event.start_ns()), int(event.duration_ns()))
        for event in profiler.kineto_results.events()
    )
    rows = operators_of(spans)
    doubles = any(row.name == _CONVERTS for row in rows) and sum(row.calls for row in rows) <= _MOST_TYPED
    return protocol.Profiled(
        call_us=median(samples) / 1e3, operators=rows[: protocol.MAX_OPERATORS], rows=len(rows),
        doubles_share=_doubles_share(forward, pool, order[:1], before) if doubles else 0.0,
    )  # fmt: skip


def _doubles_share(
    forward: Callable[..., Any], pool: Mapping[int, Arguments], order: Sequence[int], before: Callable[[], None]
) -> float:
    """Of the operators' time that of those on tensors of float64, over calls of their own: types double what is noted.

    A number is told as float64 too, and one element costs nothing.
    """
    profiler: Any = torch.autograd.profiler.profile(use_cpu=True, record_shapes=True)
    with profiler:
        time_calls(forward, pool, order, before, dropped)
    spans = (
        Span(
            _FLOAT64 if _holds_doubles(event.dtypes(), event.shapes()) else "",
            int(event.start_thread_id()), int(event.start_ns()), int(event.duration_ns()),
        )
        for event in profiler.kineto_results.events()
        if not str(event.name()).startswith(_OF_THE_PROFILER)
    )  # fmt: skip
    return next((min(row.share, 1.0) for row in operators_of(spans) if row.name == _FLOAT64), 0.0)


def _holds_doubles(kinds: Sequence[str], shapes: Sequence[Sequence[int]]) -> bool:
    return any(kind == _FLOAT64 and prod(shape) > 1 for kind, shape in zip(kinds, shapes, strict=False) if shape)


def operators_of(spans: Iterable[Span]) -> tuple[Operator, ...]:
    """Calls and own time by name, that of operators called within taken off; largest first."""
    calls: dict[str, int] = {}
    own_ns: dict[str, int] = {}
    open_ones: list[Span] = []
    for span in sorted(spans, key=lambda one: (one.thread, one.start, -one.length)):
        if span.name.startswith(_OF_THE_PROFILER):
            continue
        while open_ones and not (
            open_ones[-1].thread == span.thread and span.start < open_ones[-1].start + open_ones[-1].length
        ):
            open_ones.pop()
        if open_ones:
            around = open_ones[-1]
            own_ns[around.name] -= min(span.length, around.start + around.length - span.start)
        calls[span.name] = calls.get(span.name, 0) + 1
        own_ns[span.name] = own_ns.get(span.name, 0) + span.length
        open_ones.append(span)
    total = sum(own_ns.values()) or 1
    return tuple(
        Operator(name=name[: protocol.MAX_NAME_CHARS], calls=calls[name], self_us=time_ns / 1e3, share=time_ns / total)
        for name, time_ns in sorted(own_ns.items(), key=lambda row: -row[1])
    )

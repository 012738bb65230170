"""The referee's view of one call on a GPU: blocks are timed as a whole, by events and by the referee's wall clock.

While the baseline runs the candidate stands still. Work that it has given to the device would not stop with it, and the
device slices its time between processes that have work: so the referee waits until the device answers at once, and
compares the inputs right before and right after.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from pydantic import JsonValue

from kernelgate.tasks.model import Task
from kernelgate.tools.kit.facts import WHILE_BASELINE, Block, Ceilings, Comparison, DeviceState, Fault, Prepared, Side
from kernelgate.tools.kit.statistics import median
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import conversation, cuda_timing, protocol
from kernelgate.tools.worker.answers import Question, mutated
from kernelgate.tools.worker.bench import Control, House, RefereeBench
from kernelgate.tools.worker.counters import Counting
from kernelgate.tools.worker.cuda_ceilings import measure_cuda_ceilings
from kernelgate.tools.worker.cuda_device import leave_room, observe
from kernelgate.tools.worker.cuda_timing import BlockTimes, CudaTimer, Pace, Row, Surroundings
from kernelgate.tools.worker.handover import Handover
from kernelgate.tools.worker.inputs import Drawn, reseed
from kernelgate.tools.worker.lending import Lender
from kernelgate.tools.worker.pool import InputPool, any_true
from kernelgate.tools.worker.profiling import CudaProfiling
from kernelgate.tools.worker.ready import ReadyWorkload
from kernelgate.tools.worker.reference import HeldWorkload
from kernelgate.tools.worker.signals import Around
from kernelgate.tools.worker.structure import call_arguments
from kernelgate.tools.worker.timing import nothing

ATTEMPTS: Final = 3
"""A block whose calls were not enqueued in time is measured again, behind a longer sleep."""
SURROUNDINGS_ROUNDS: Final = 3
MOST_OVERSLEPT: Final = 2.5
"""Blocks sleep at most so many times longer than is needed before what surrounds them is measured anew."""
CONTEXT_BYTES: Final = 1 << 30
"""The candidate's context, flush buffer and kernels."""
QUIET_LIMIT_S: Final = 1.0
"""For work that the candidate left on the device; what takes longer is no leftover."""
BUSY: Final = (
    f"the GPU was still busy {QUIET_LIMIT_S:g} s after it had said that its calls were done and was stopped: "
    "work beside the calls slows the baseline down"
)
CONSTANTS_KEPT: Final = 15
STATE_S: Final = 0.1
"""NVML needs a millisecond to tell the power."""


@dataclass
class _Run:
    """What was seen of the last block of the candidate."""

    ran: protocol.Ran
    wall_us: float


@dataclass
class _Measured:
    """The runs of one block."""

    rows: list[Row] = field(default_factory=list[Row])
    samples_us: list[float] = field(default_factory=list[float])
    comparison: Comparison | None = None
    covered: bool = True
    recompiled: bool = False

    def worst(self, found: Comparison | None) -> None:
        """Keep a problem once there is one."""
        if self.comparison is None or self.comparison.problem == "none":
            self.comparison = found or self.comparison


class CudaBench(RefereeBench):
    """One call on one candidate on a GPU. See `Bench` for what its methods promise."""

    _answer_sets = 1  # an answer is copied behind the closing event: a copy that is saved saves nothing that is timed

    def __init__(
        self,
        task: Task,
        device: DeviceRef,
        house: House,
        lender: Lender,
        control: Control,
        conversation: conversation.Conversation | None,
        timer: CudaTimer,
        counting: Counting,
    ) -> None:
        """As `RefereeBench`; the timer and the counters are the referee's own."""
        super().__init__(task, device, house, lender, control, conversation)
        self._timer = timer
        self._pace = Pace()
        self._around: Surroundings | None = None
        self._constants_us: deque[float] = deque(maxlen=CONSTANTS_KEPT)
        self._last: _Run | None = None
        self._profiling = CudaProfiling(
            partial(self._ask, "profile"), self._secret, device.target, counting, self.on_the_house
        )
        self._state: dict[str, JsonValue] = {}
        self._state_s = -STATE_S

    def load(self) -> Fault | None:
        """See `Bench`; the candidate's process starts CUDA first."""
        leave_room(CONTEXT_BYTES)
        self._timer.learn_how_soon_it_answers()
        return super().load()

    def prepare(self, workload: str, pool_entries: int) -> Prepared | Fault:
        """See `Bench`."""
        self._pace, self._around = Pace(), None
        self._constants_us.clear()
        prepared = super().prepare(workload, pool_entries)
        if isinstance(prepared, Fault):
            return prepared
        covered = self._last is not None and self._last.ran.covered
        error_us = cuda_timing.OUTSIDE_ERROR_US if covered else cuda_timing.UNCOVERED_ERROR_US
        clock = {"outside_error_us": error_us, "outside_clock": cuda_timing.OUTSIDE_CLOCK}
        return prepared.model_copy(update=clock)

    def block(self, side: Side, calls: int, *, verify: bool) -> Block | Fault:
        """See `Bench`: runs of n and of 3n calls, no pool entry twice in one, in an order that nobody else knows."""
        ready = self._ready
        if ready is None:
            raise RuntimeError("block() needs a prepared workload: call prepare() first")
        fault = self._grow(ready, max(cuda_timing.block_lengths(calls, ready.limit)))
        if fault is not None:
            return fault
        lengths = cuda_timing.block_lengths(calls, len(ready.pool.entries))
        around = self._surroundings(ready, lengths)
        measured = self._measured(side, ready, lengths, verify=verify)
        for _ in range(ATTEMPTS - 1):
            if isinstance(measured, Fault) or measured.covered or self._pace.hopeless(side):
                break
            around = self._surroundings(ready, lengths)
            measured = self._measured(side, ready, lengths, verify=verify)
        if isinstance(measured, Fault):
            return measured
        return Block(
            side=side,
            workload=ready.held.name,
            samples_us=tuple(measured.samples_us),
            outside_us=(self._outside_us(side, ready, measured.rows, around),),
            comparison=measured.comparison,
            recompiled=measured.recompiled,
        )

    def _measured(self, side: Side, ready: ReadyWorkload, lengths: Sequence[int], *, verify: bool) -> _Measured | Fault:
        entries = range(len(ready.pool.entries))
        orders = [self._secret.sample(entries, length) for length in self._secret.sample(lengths, len(lengths))]
        if side == "baseline":
            return self._baseline_runs(ready, orders)
        measured = _Measured()
        for order in orders:
            outcome = self._candidate_row(ready, order, verify=verify)
            if isinstance(outcome, Fault):
                return outcome
            assert self._last is not None
            ran = self._last.ran
            measured.samples_us += outcome[0]
            measured.covered &= ran.covered
            measured.recompiled |= ran.compilations > 0
            measured.worst(outcome[2])
            measured.rows.append(Row(len(order), self._last.wall_us))
            if measured.comparison is not None and measured.comparison.problem != "none":
                break
        return measured

    def _baseline_runs(self, ready: ReadyWorkload, orders: Sequence[list[int]]) -> _Measured | Fault:
        """Runs of the baseline on a device that is its own, and whether its inputs were as they should be all along."""
        fault = self._quieten()
        if fault is not None:
            return fault
        measured = _Measured()
        used = [ready.pool.entries[index] for index in sorted({index for order in orders for index in order})]
        differences = [difference for entry in used for difference in entry.differences()]
        for order in orders:
            times, wall_us = self._time_baseline(ready, order)
            measured.samples_us += [sample / 1e3 for sample in times.samples_ns]
            measured.covered &= times.covered
            measured.rows.append(Row(len(order), wall_us))
        differences += [difference for entry in used for difference in entry.differences()]
        if any_true(differences):
            for entry in used:
                entry.put_back()
            found = mutated(Question(self._task, ready.held.name, "original", None))
            measured.comparison = found.model_copy(update={"pattern": WHILE_BASELINE})
        return measured

    def _quieten(self) -> Fault | None:
        """Stop the candidate, and wait for the end of what it has given to the device."""
        self._hold_still()
        if self._timer.becomes_quiet(QUIET_LIMIT_S):
            return None
        return Fault(kind="busy_device", stage="block", error=BUSY)

    def _outside_us(self, side: Side, ready: ReadyWorkload, rows: list[Row], around: Surroundings) -> float:
        if side == "baseline":
            self._note_constant(rows)
            return cuda_timing.outside_us(rows, around, None)
        constant_us = median(self._constants_us) if self._constants_us else around.constant_us
        handed = [Row(row.calls, max(0.0, row.wall_us - ready.round_trip_us)) for row in rows]
        return cuda_timing.outside_us(handed, around, constant_us)

    def _note_constant(self, rows: list[Row]) -> None:
        """What a block of the baseline costs beside its calls, at the clock that the device has now."""
        longest, shortest = max(rows, key=lambda row: row.calls), min(rows, key=lambda row: row.calls)
        if longest.calls > shortest.calls:
            slope_us = (longest.wall_us - shortest.wall_us) / (longest.calls - shortest.calls)
            self._constants_us.append(max(0.0, longest.wall_us - longest.calls * slope_us))

    def _surroundings(self, ready: ReadyWorkload, lengths: Sequence[int]) -> Surroundings:
        """What blocks of these lengths cost beside their calls, behind a sleep that is long enough now."""
        sleep_us = self._pace.sleep_us(max(lengths))
        around = self._around
        fits = around is not None and sleep_us <= around.sleep_us <= MOST_OVERSLEPT * sleep_us
        if around is not None and fits and set(lengths) <= set(around.whole_us):
            return around
        start = time.perf_counter()
        self._quieten()  # where it stays busy, the baseline's block that follows says so
        self._constants_us.clear()
        whole_us = {length: self._nothing_us(ready, length, sleep_us) for length in sorted(set(lengths))}
        self._around = Surroundings.of(sleep_us, whole_us)
        self._house.house_s += time.perf_counter() - start
        return self._around

    def _nothing_us(self, ready: ReadyWorkload, calls: int, sleep_us: float) -> float:
        """Wall clock of a block whose calls do nothing, as an earlier call found it or now.

        The least that was ever seen: a candidate that keeps the device busy meanwhile can only lengthen it, and the
        more is taken off, the better its outside time looks.
        """
        kept = self._house.surroundings
        key = (ready.held.name, calls, sleep_us)
        if key in kept:
            return kept[key]
        pool = {index: call_arguments(entry.lent) for index, entry in enumerate(ready.pool.entries)}
        handover = Handover(ready.places)

        def nothing_done(*_: Any, **__: Any) -> Any:
            return ready.expected

        order = list(range(calls))
        walls_us = [
            self._timed(nothing_done, pool, order, nothing, handover, sleep_us)[1] for _ in range(SURROUNDINGS_ROUNDS)
        ]
        kept[key] = min(walls_us)
        return kept[key]

    def _baseline_row(self, ready: ReadyWorkload, order: list[int], *, refresh: bool = False) -> Sequence[float]:
        self._hold_still()
        times, _ = self._time_baseline(ready, order)
        return [sample / 1e3 for sample in times.samples_ns]

    def _time_baseline(self, ready: ReadyWorkload, order: list[int]) -> tuple[BlockTimes, float]:
        built = ready.held.built
        pool = {index: call_arguments(ready.pool.entries[index].lent) for index in order}
        seed = self._secret.getrandbits(31)
        reseed(seed)
        before, handover = built.before_call(seed), Handover(ready.places)
        times, wall_us = self._timed(built.module, pool, order, before, handover, self._sleep_us(len(order)))
        self._pace.note("baseline", len(order), times.enqueue_us, covered=times.covered)
        return times, wall_us

    def _sleep_us(self, calls: int) -> float:
        """Of a block; the same for all of a workload once its surroundings are known."""
        return self._pace.sleep_us(calls) if self._around is None else self._around.sleep_us

    def _timed(
        self,
        forward: Any,
        pool: dict[int, Any],
        order: Sequence[int],
        before: Any,
        handover: Handover,
        sleep_us: float,
    ) -> tuple[BlockTimes, float]:
        """A block in this process, with its wall clock: what GO and DONE enclose on the candidate's side."""
        ends: list[int] = []
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        times = self._timer.time_block(
            forward, pool, order, before, handover.take, sleep_us, lambda: ends.append(time.perf_counter_ns())
        )
        return times, (ends[0] - start) / 1e3

    def _run(
        self,
        stage: protocol.Stage,
        held: HeldWorkload,
        order: list[int],
        seed: int,
        around: Around = conversation.NOTHING,
    ) -> tuple[protocol.Ran, tuple[float, ...]] | Fault:
        """As the base; the one time that comes back is the claimed time of a call: it only sizes blocks."""
        self._let_run()
        torch.cuda.synchronize()  # what was lent must be written
        built = held.built
        question = protocol.Run(
            order=tuple(order), seed=seed, reseed=built.reseed, restore=built.restore,
            block=True, sleep_us=self._sleep_us(len(order)),
        )  # fmt: skip

        def all_ready(_: int) -> None:
            for position in range(len(order)):
                around.at_ready(position)
            torch.cuda.synchronize()

        def all_done(_: int) -> None:
            for position in range(len(order)):
                around.at_done(position)

        answer = self._candidate.run(stage, question, Around(all_ready, all_done))
        if isinstance(answer, Fault):
            return answer
        ran, (wall_us,) = answer
        self._pace.note("candidate", len(order), ran.enqueue_us, covered=ran.covered)
        self._last = _Run(ran, wall_us)
        return ran, (max(1.0, median(ran.samples_ns) / 1e3),)

    def _ask(
        self,
        stage: protocol.Stage,
        question: protocol.Question,
        answer: type[conversation.AnswerT],
        descriptors: Sequence[int] = (),
    ) -> conversation.AnswerT | Fault:
        torch.cuda.synchronize()  # what was lent must be written
        return super()._ask(stage, question, answer, descriptors)

    def _construct(self, held: HeldWorkload) -> Fault | None:
        leave_room(CONTEXT_BYTES + 2 * held.sizes.weights_bytes)
        return super()._construct(held)

    def _lend(self, pool: InputPool, drawn: list[Drawn], expected: object, *, replace: bool) -> Fault | None:
        fault = super()._lend(pool, drawn, expected, replace=replace)
        sizes = self._house.held[self._constructed].sizes
        leave_room(CONTEXT_BYTES + sizes.inputs_bytes + 2 * sizes.outputs_bytes)
        return fault

    def _forget(self) -> Fault | None:
        """As the base; the candidate gives the memory back before it is freed."""
        answer = None
        if self._pool is not None and self._conversation is not None:
            answer = self._ask("forward", protocol.Forget(), protocol.Done)
        super()._forget()
        return answer if isinstance(answer, Fault) else None

    def _hand_over_us(self, ready: ReadyWorkload) -> float:
        """None: it is no part of a slope over two lengths."""
        return 0.0

    def state(self) -> DeviceState | None:
        """Clocks and what holds the device back, from NVML; what changes slowly is read anew every `STATE_S`."""
        now_s = time.monotonic()
        shortly = now_s - self._state_s < STATE_S
        self._state |= observe(self.device.uid, shortly=shortly)
        self._state_s = self._state_s if shortly else now_s
        return DeviceState.model_validate(self._state) if self._state else None

    def ceilings(self) -> Ceilings:
        """As the base; what was measured beside somebody's work is not kept."""
        alone = self._house.ceilings is not None or self._quieten() is None
        found = super().ceilings()
        if not alone:
            self._house.ceilings = None
        return found

    def _measure_ceilings(self) -> Ceilings:
        largest = max(self._house.held.values(), key=lambda held: held.sizes.flops)
        return measure_cuda_ceilings(largest.sizes.dtype)

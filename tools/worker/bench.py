"""The referee's view of one call: implements `kernelgate.tools.kit.bench.Bench` over a candidate's process."""

import dataclasses
import random
import time
from collections.abc import Sequence
from functools import partial

from kernelgate.tasks.model import Distribution, Task
from kernelgate.tools.kit import facts
from kernelgate.tools.kit.evidence import Counted, Inspection, OperatorProfile
from kernelgate.tools.kit.facts import Block, Ceilings, Comparison, Fault, Prepared, Side, Watched
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import conversation, protocol
from kernelgate.tools.worker.answers import judge_answer, mutated
from kernelgate.tools.worker.ceilings import measure_ceilings
from kernelgate.tools.worker.comparing import PLACES, Memory, Places
from kernelgate.tools.worker.construct import construction
from kernelgate.tools.worker.control import Busy
from kernelgate.tools.worker.control import Control as Control
from kernelgate.tools.worker.control import House as House
from kernelgate.tools.worker.inputs import Drawn
from kernelgate.tools.worker.lending import Lender, Loan
from kernelgate.tools.worker.lookout import Lookout, too_early
from kernelgate.tools.worker.pool import ANSWER_SETS, InputPool
from kernelgate.tools.worker.profiling import Profiling
from kernelgate.tools.worker.qualifying import Qualifying
from kernelgate.tools.worker.ready import Preparing, ReadyWorkload, entries_that_fit, mean_us, rotation, warm_calls
from kernelgate.tools.worker.reference import HeldWorkload
from kernelgate.tools.worker.rows import BlockTally, TimedRow, beyond_windows, claims_of
from kernelgate.tools.worker.signals import Around
from kernelgate.tools.worker.structure import tensors_in


class RefereeBench:
    """One call on one candidate. See `Bench` for what its methods promise."""

    _answer_sets = ANSWER_SETS

    def __init__(
        self,
        task: Task,
        device: DeviceRef,
        house: House,
        lender: Lender,
        control: Control,
        conversation: conversation.Conversation | None,
    ) -> None:
        """Without a conversation (qualification) only what needs no candidate can be asked."""
        self._task, self._device, self._house = task, device, house
        self._lender, self._control, self._conversation = lender, control, conversation
        self._secret = random.Random(random.SystemRandom().getrandbits(256))
        self._stopped = False
        self._constructed = ""
        self._missing: tuple[str, ...] = ()
        self._ready: ReadyWorkload | None = None
        self._places: Places | None = None
        self._busy = Busy()
        self._beyond = (0.0, 0.0)
        self._pool: InputPool | None = None
        self._weights: Loan | None = None
        self._memory = Memory(self._secret)
        self._qualifying = Qualifying(task)
        self._profiling = Profiling(partial(self._ask, "profile"), self._secret)
        self.preparing = Preparing()

    @property
    def task(self) -> Task:
        """The task of the call."""
        return self._task

    @property
    def device(self) -> DeviceRef:
        """The device of the call."""
        return self._device

    @property
    def secret(self) -> random.Random:
        """Randomness that never leaves the referee."""
        return self._secret

    def progress(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Tell the waiting client how far the call is."""
        self._control.progress(stage, done, total)

    def workloads(self, *, held_out: bool) -> tuple[facts.WorkloadFacts, ...]:
        """Smallest first."""
        return tuple(w.facts for w in self._house.held.values() if held_out or not w.facts.held_out)

    def load(self) -> Fault | None:
        """Have the module imported; the secret of this call is drawn after that."""
        start = time.perf_counter()
        question = protocol.Load(precision=self._task.precision, threads=self._device.threads)
        answer = self._ask("load", question, protocol.Done)
        self._secret.seed(random.SystemRandom().getrandbits(256))
        self.preparing.note_load(start)
        return answer if isinstance(answer, Fault) else None

    def compare(
        self, workload: str, distribution: Distribution, again: int | None = None, *, wait: bool = False
    ) -> Comparison | Fault:
        """One forward on secret inputs, fresh ones but with `again`; see `comparing` for the memory of both."""
        began_s = None if self._constructed == workload else time.perf_counter()
        held = self._held(workload)
        asked = self._memory.next_question(workload, distribution, again)
        but = None if again is None else asked.place
        index = self._places.take(self._secret, but) if self._places and self._constructed == workload else None
        if index is None:
            if (fault := self._forget()) is not None:
                return fault
            held.require_memory()
            if (fault := self._construct(held)) is not None:
                return fault
        drawn = held.draw(asked.distribution, asked.inputs_seed)
        expected = held.expect(drawn.arguments, asked.seed)
        pool = self._pool
        if index is None or pool is None or not pool.refill(index, drawn, expected):
            outcome = self._lend_to_compare(held, drawn, expected, asked.distribution)
            if isinstance(outcome, Fault):
                return outcome
            pool, index = outcome, 0
        if wait and isinstance(asked_to := self._ask("forward", protocol.WaitForDevice(), protocol.Done), Fault):
            return asked_to
        self._memory.note(dataclasses.replace(asked, place=index))
        entry = pool.entries[index]
        lookout = Lookout(self._secret, pool)
        ran = self._run("forward", held, [index], asked.seed, Around(at_done=lambda _: lookout.look(index)))
        if isinstance(ran, Fault):
            return ran
        self.preparing.note_first_call(began_s)
        question = self._memory.question(self._task, workload, asked, expected, held, self._missing)
        spoiled = entry.changed()
        found = mutated(question) if spoiled else judge_answer(question, entry, claims_of(ran[0], index))
        # Behind the judging, which looks twice at what seems wrong: the second time a late answer would be right.
        if lookout.changed():
            return too_early("forward")
        if spoiled:
            return found
        known = self._memory.keep(question, entry.answers, again)
        return found.model_copy(update={"again": known})

    def _lend_to_compare(
        self, held: HeldWorkload, drawn: Drawn, expected: object, distribution: Distribution
    ) -> InputPool | Fault:
        """A pool whose first entry holds these inputs."""
        pool = self._pool = InputPool(self._lender, self._secret, self._answer_sets)
        entries = PLACES if held.fits(PLACES) else 1
        others = [held.draw(distribution) for _ in range(entries - 1)]
        fault = self._lend(pool, [drawn, *others], expected, replace=True)
        if fault is not None:
            return fault
        self._places = Places(entries, again=held.fits())
        self._places.take(self._secret)
        return pool

    def prepare(self, workload: str, pool_entries: int) -> Prepared | Fault:
        """Lend a pool, make the first calls and some warm ones on both sides."""
        start = time.perf_counter()
        held = self._held(workload)
        if (fault := self._forget() or self._construct(held)) is not None:
            return fault
        limit = entries_that_fit(held)
        entries = max(1, min(pool_entries, limit))
        held.require_memory(entries)
        drawn = [held.draw("original") for _ in range(entries)]
        expected = held.expect(drawn[0].arguments, self._secret.getrandbits(31))
        pool = self._pool = InputPool(self._lender, self._secret, self._answer_sets)
        self._hold_still()  # the hand-over is measured now: who drew it out would have more taken off each call
        ready = ReadyWorkload(held, pool, limit, expected=expected)
        fault = self._lend(ready.pool, drawn, expected, replace=True)
        if fault is not None:
            return fault
        ran = self._run("block", held, list(range(entries)), self._secret.getrandbits(31))
        if isinstance(ran, Fault):
            return ran
        prepare_s = self.preparing.note_first_call(start)
        ready.extend_places()
        warm_order = rotation(warm_calls(mean_us(ran[1])), entries)
        ran = self._run("block", held, warm_order, self._secret.getrandbits(31))
        if isinstance(ran, Fault):
            return ran
        candidate_us = mean_us(ran[1])
        self._ready = ready
        first = self._baseline_row(ready, list(range(entries)))
        warm = self._baseline_row(ready, rotation(warm_calls(mean_us(first)), entries))
        return Prepared(
            workload=held.facts, prepare_s=prepare_s, candidate_us=candidate_us, baseline_us=mean_us(warm),
            hand_over_us=self._hand_over_us(ready),
        )  # fmt: skip

    def block(self, side: Side, calls: int, *, verify: bool) -> Block | Fault:
        """Time calls by our clock alone, no pool entry twice in a row of calls where memory allows that.

        A call on inputs of another distribution takes another time: it gives no sample.
        """
        ready = self._ready
        if ready is None:
            raise RuntimeError("block() needs a prepared workload: call prepare() first")
        fault = self._grow(ready, calls)
        if fault is not None:
            return fault
        # Of several rows any may be the verified one: whoever computes in the first alone is found.
        turn = self._secret.randrange(-(-calls // len(ready.pool.entries)))
        made, tally = 0, BlockTally()
        while made < calls or not tally.outside_us:
            entries = len(ready.pool.entries)
            order = self._secret.sample(range(entries), max(1, min(entries, calls - made)))
            made += len(order)
            if side == "baseline":
                tally.outside_us.extend(self._baseline_row(ready, order, refresh=True))
                continue
            outcome = self._candidate_row(ready, order, verify=verify and tally.timed_rows == turn)
            if isinstance(outcome, Fault):
                return outcome
            tally.note(outcome[1], self._beyond, outcome[2])
            if tally.wrong:
                break
        return tally.block(side, ready.held.name)

    def state(self) -> facts.DeviceState | None:
        """Processor time that the host took for others since the last look."""
        return self._house.stolen.look()

    def on_the_house(self, seconds: float) -> None:
        """See `Bench`."""
        self._house.house_s += seconds

    def profile(self, workload: str, calls: int, *, counters: bool) -> OperatorProfile | Fault:
        """Operators of some warm calls."""
        self._profiling.begin(counters=counters)
        prepared = self.prepare(workload, self._profiling.entries(self._held(workload).sizes))
        return prepared if isinstance(prepared, Fault) else self._profiling.profile(prepared, calls)

    def counted(self, workload: str) -> Counted:
        """See `Bench`; on the CPU nothing is counted."""
        return self._profiling.counted(self._held(workload).sizes, self._task.precision)

    def inspect(self, limit_s: float) -> Inspection | Fault:
        """See `Bench`."""
        return self._profiling.inspect(self._task.precision, limit_s)

    def watched(self) -> Watched | Fault:
        """One more call, its operators noted by the candidate's process."""
        closely = not self._task.allow_library_calls
        return self._ask("forward", protocol.Watch(seed=self._secret.getrandbits(31), closely=closely), Watched)

    def ceilings(self) -> Ceilings:
        """Measured once by a referee, on the house."""
        if self._house.ceilings is None:
            start = time.perf_counter()
            self._hold_still()
            self._house.ceilings = self._measure_ceilings()
            self.on_the_house(time.perf_counter() - start)
        return self._house.ceilings

    def reference(self, workload: str, distribution: Distribution) -> facts.ReferenceFacts:
        """The reference run twice on the same input, and once in float64."""
        return self._qualifying.reference(self._held(workload), distribution)

    def trials(self, workload: str, distribution: Distribution) -> tuple[facts.Trial, ...]:
        """Mutant answers, judged on the draw that `reference` made just before."""
        return self._qualifying.trials(workload, distribution)

    def close(self) -> None:
        """Let the candidate run to its end."""
        self._profiling.close()
        if self._conversation is not None:
            self._let_run()
            self._conversation.close()
        self._ready = self._pool = self._weights = None
        self._house.forget_variants()

    def _measure_ceilings(self) -> Ceilings:
        return measure_ceilings()

    def _forget(self) -> Fault | None:
        """Let go of the input pool that is lent now: the next one is made in new memory."""
        self._ready = self._pool = self._places = None
        return None

    def _held(self, workload: str) -> HeldWorkload:
        """The workload, as the only one whose weights are in memory: several might not fit."""
        for name, other in self._house.held.items():
            if name != workload:
                other.forget()
        return self._house.held[workload]

    @property
    def _candidate(self) -> conversation.Conversation:
        if self._conversation is None:
            raise RuntimeError("this call has no candidate")
        return self._conversation

    def _ask(
        self,
        stage: protocol.Stage,
        question: protocol.Question,
        answer: type[conversation.AnswerT],
        descriptors: Sequence[int] = (),
    ) -> conversation.AnswerT | Fault:
        self._let_run()
        return self._candidate.ask(stage, question, answer, descriptors)

    def _hold_still(self) -> None:
        """Stop the candidate, so that no thread of it disturbs the baseline or changes an answer being compared."""
        if self._conversation is not None and not self._stopped:
            self._busy = self._control.stop()
            self._stopped = True

    def _let_run(self) -> None:
        if self._stopped:
            self._stopped = False
            self._control.proceed()

    def _construct(self, held: HeldWorkload) -> Fault | None:
        if self._constructed == held.name:
            return None
        start = time.perf_counter()
        built = held.built
        self._house.house_s += time.perf_counter() - start
        question, loan = construction(self._task, held, self._lender)
        answer = self._hand("construct", question, protocol.Constructed, loan)
        if isinstance(answer, Fault):
            return answer
        # The model may keep tensors among its arguments; of weights it has made copies.
        self._weights = loan if tensors_in(built.init_arguments) else None
        self._constructed = held.name
        self._missing = answer.missing
        self._ready = None
        return None

    def _lend(self, pool: InputPool, drawn: list[Drawn], expected: object, *, replace: bool) -> Fault | None:
        question, loan = pool.add(drawn, expected, replace=replace)
        answer = self._hand("forward", question, protocol.Done, loan)
        return answer if isinstance(answer, Fault) else None

    def _hand(
        self, stage: protocol.Stage, question: protocol.Question, answer: type[conversation.AnswerT], loan: Loan | None
    ) -> conversation.AnswerT | Fault:
        if loan is None:
            return self._ask(stage, question, answer)
        try:
            return self._ask(stage, question, answer, loan.descriptors)
        finally:
            loan.close_descriptor()

    def _run(
        self,
        stage: protocol.Stage,
        held: HeldWorkload,
        order: list[int],
        seed: int,
        around: Around = conversation.NOTHING,
    ) -> tuple[protocol.Ran, tuple[float, ...]] | Fault:
        """Have the candidate called; with the claims come the calls' times by our clock. It stands still afterwards."""
        self._hold_still()
        before = self._busy
        self._let_run()
        built = held.built
        question = protocol.Run(order=tuple(order), seed=seed, reseed=built.reseed, restore=built.restore)
        place = None if self._pool is None else self._pool.places_of(order)
        answer = self._candidate.run(stage, question, dataclasses.replace(around, place=place))
        self._hold_still()
        if not isinstance(answer, Fault):
            self._beyond = beyond_windows(before, self._busy, answer[1], self._device.threads)
        return answer

    def _hand_over_us(self, ready: ReadyWorkload) -> float:
        """By so much a candidate's hand-over may be shorter than the one that was measured."""
        return ready.round_trip_us

    def _candidate_row(
        self, ready: ReadyWorkload, order: list[int], *, verify: bool
    ) -> tuple[list[float], tuple[float, ...], Comparison | None] | Fault:
        """Samples, the same calls by our clock, and what the outputs were worth."""
        row = TimedRow(self._task, ready, order, self._secret, verify=verify)
        seed = self._secret.getrandbits(31)
        outcome = self._run("block", ready.held, order, seed, row.around)
        if isinstance(outcome, Fault):
            return outcome
        ran, walls_us = outcome
        comparison = row.judge(ran, seed)
        if row.lookout.changed():
            return too_early("block")
        return [sample / 1e3 for sample in ran.samples_ns], ready.outside_us(row.usual(walls_us)), comparison

    def _baseline_row(self, ready: ReadyWorkload, order: list[int], *, refresh: bool = False) -> Sequence[float]:
        """The reference on the lent inputs, by our clock; the candidate stands still."""
        self._hold_still()
        return ready.time_baseline(order, self._secret, refresh=refresh)

    def _grow(self, ready: ReadyWorkload, calls: int) -> Fault | None:
        """More pool entries, so that no call of a block sees inputs that the block had before."""
        drawn = ready.further_inputs(calls)
        if not drawn:
            return None
        fault = self._lend(ready.pool, drawn, ready.expected, replace=False)
        ready.extend_places()
        return fault

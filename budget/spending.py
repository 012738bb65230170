"""Ending a hold: extend raises it once, settle or release ends it. Each is one immediate transaction."""

from collections.abc import Sequence
from typing import Any, Final

from kernelgate.budget.admission import Admission
from kernelgate.budget.artifacts import Artifacts
from kernelgate.budget.chain import Event, append
from kernelgate.budget.errors import HoldClosed
from kernelgate.budget.holds import Holds, OpenHold
from kernelgate.budget.model import HOUSE, Amount, Purse, ReleaseReason, UnjudgedReason
from kernelgate.budget.outcomes import Extended, Refused, Released, Settled
from kernelgate.budget.purse import Shortage, charge, overrun, plus, purse_text, shortage, trimmed
from kernelgate.budget.records import ArtifactInput, Head, Json, ResultInput, SampleInput
from kernelgate.budget.rows import insert, insert_observation, insert_samples
from kernelgate.tasks.model import canonical_json

ABOVE_THE_HOLD: Final = "measured above the hold"
"""Why a settle is followed by an overrun."""


class Spending(Admission, Artifacts, Holds):
    """What happens to a hold after it was admitted."""

    def extend(self, hold_seq: int, more: Amount) -> Extended | Refused:
        """Raise a hold, once: device and work seconds by what was asked, or by what is left if that is less.

        Refused where nothing is left of one of the two.

        Raises:
            HoldClosed: the hold has ended, or was extended before.
        """
        with self.transaction() as connection:
            hold = self.open_hold(hold_seq)
            if hold.extended:
                raise HoldClosed(f"hold {hold_seq} was extended before; it happens once")
            asked = more.model_copy(update={"calls": 0})
            cap = self.cap_left(hold.account_id)
            lacking = shortage(hold.purse, cap, hold.rung, asked, Amount(), hold.held)
            if lacking is not None:
                return self._refuse_extension(hold, lacking)
            extra = trimmed(hold.purse, cap, asked)
            after = hold.purse.holding(hold.rung, extra)
            event = Event(**_same_call(hold), kind="extend", hold_seq=hold_seq, **extra.model_dump(),
                          purse_json=purse_text(after))  # fmt: skip
            head = append(connection, self._clock, event)
            return Extended(hold=plus(hold.held, extra), purse=after, head=head)

    def settle(
        self,
        hold_seq: int,
        measured: Amount,
        result: ResultInput,
        samples: Sequence[SampleInput] = (),
        artifacts: Sequence[ArtifactInput] = (),
        observation: Json | None = None,
    ) -> Settled:
        """End a hold with a result: the smaller of measured and held is charged, the excess is the house's.

        Args:
            hold_seq: the hold.
            measured: seconds of lease and of work; calls are charged as held.
            result: what came of it.
            samples: raw blocks.
            artifacts: files to keep beside the book.
            observation: device state while measuring.

        Raises:
            HoldClosed: the hold has ended before.
            ValueError: the result is of another rung than the hold.
        """
        # What others would wait for in vain is done before the transaction.
        report_json = canonical_json(result.report)
        kept = self._keep(self.open_hold(hold_seq).run_id, artifacts) if artifacts else ()
        filled = _filled(samples=samples, artifacts=kept, observations=observation)
        with self.transaction() as connection:
            hold = self.open_hold(hold_seq)
            if hold.rung is not result.rung:
                raise ValueError(f"hold {hold_seq} is for {hold.rung}, the result is of {result.rung}")
            charged, over = charge(measured, hold.held), overrun(measured, hold.held)
            before = self.head()
            row = _result_row(hold, result, report_json, charged, over.device_s)
            result_id = insert(
                connection, "results", {**row, "event_seq": before.seq + 1, "created_utc": self._clock.utc()}
            )
            insert_samples(connection, result_id, samples)
            if kept:
                self._list(result_id, kept)
            if observation is not None:
                insert_observation(connection, hold.call["environment_id"], result_id, observation, self._clock.utc())
            after = hold.purse_after(charged)
            event = Event(**_same_call(hold), kind="settle", hold_seq=hold_seq, **charged.model_dump(),
                          overrun_s=over.device_s, reason=result.verdict.value, purse_json=purse_text(after),
                          rows_sha256=self._paid.digest(result_id, filled))  # fmt: skip
            head = append(connection, self._clock, event, before)
            head = self._book_overrun(hold, over, ABOVE_THE_HOLD, after) or head
        return Settled(result_id=result_id, charged=charged, overrun_s=over.device_s, purse=after, head=head)

    def settle_unjudged(self, hold_seq: int, measured: Amount, reason: UnjudgedReason) -> Settled:
        """End a hold whose work was used up but says nothing of the candidate: charged, without a result.

        Args:
            hold_seq: the hold.
            measured: seconds of lease and of work; calls are charged as held.
            reason: why nothing was judged.

        Raises:
            HoldClosed: the hold has ended before.
        """
        with self.transaction() as connection:
            hold = self.open_hold(hold_seq)
            charged, over = charge(measured, hold.held), overrun(measured, hold.held)
            after = hold.purse_after(charged)
            event = Event(**_same_call(hold), kind="settle", hold_seq=hold_seq, **charged.model_dump(),
                          overrun_s=over.device_s, reason=reason, purse_json=purse_text(after))  # fmt: skip
            head = append(connection, self._clock, event)
            head = self._book_overrun(hold, over, ABOVE_THE_HOLD, after) or head
            return Settled(result_id=None, charged=charged, overrun_s=over.device_s, purse=after, head=head)

    def release(self, hold_seq: int, reason: ReleaseReason, detail: str = "", *, house_s: float = 0.0) -> Released:
        """End a hold without a result: all of it returns to the purse.

        Args:
            hold_seq: the hold.
            reason: why, from the closed list.
            detail: one sentence for the auditor.
            house_s: device seconds that were used up all the same; booked on the house.

        Raises:
            HoldClosed: the hold has ended before.
        """
        with self.transaction() as connection:
            hold = self.open_hold(hold_seq)
            after = hold.purse_after(Amount())
            text = f"{reason}: {detail}" if detail else reason
            event = Event(**_same_call(hold), kind="release", hold_seq=hold_seq, **hold.held.model_dump(), reason=text,
                          purse_json=purse_text(after))  # fmt: skip
            head = append(connection, self._clock, event)
            head = self._book_overrun(hold, _device_amount(hold, house_s), text, after) or head
            return Released(reason=reason, purse=after, head=head)

    def _refuse_extension(self, hold: OpenHold, lacking: Shortage) -> Refused:
        kind, why, missing = lacking
        event = Event(**_same_call(hold), kind="refuse", hold_seq=hold.seq, refusal_kind=kind,
                      reason=f"Hold {hold.seq} cannot be raised: {why}", missing=missing)  # fmt: skip
        return self._write_refusal(event, hold.purse, kind)

    def _book_overrun(self, hold: OpenHold, over: Amount, reason: str, purse: Purse) -> Head | None:
        """Book on the house what a hold does not pay: the event right behind the one that ended it."""
        if over == Amount():
            return None
        event = Event(**_same_call(hold, HOUSE), kind="overrun", hold_seq=hold.seq, **over.model_dump(),
                      overrun_s=over.device_s, reason=reason, purse_json=purse_text(purse))  # fmt: skip
        with self.transaction() as connection:
            self.record_account(HOUSE)
            return append(connection, self._clock, event)


def _result_row(
    hold: OpenHold, result: ResultInput, report_json: str, charged: Amount, overrun_s: float
) -> dict[str, object]:
    score = result.score
    return {
        "run_id": hold.run_id, "candidate_id": hold.call["candidate_id"], "source_sha256": hold.source_sha256,
        "task_digest": hold.task_digest, "workload_set": result.workload_set, "plan_digest": result.plan_digest,
        "rung": result.rung.value, "environment_id": hold.call["environment_id"], "verdict": result.verdict.value,
        "code": result.code, "report_json": report_json, "ratio": score and score.ratio,
        "ratio_low": score and score.low, "ratio_high": score and score.high, "gpu_s": charged.gpu_s,
        "cpu_s": charged.cpu_s, "work_s": charged.work_s, "overrun_s": overrun_s, "house_s": result.house_s,
        "queue_s": result.queue_s, "prepare_s": result.prepare_s, "wall_s": result.wall_s,
    }  # fmt: skip


def _device_amount(hold: OpenHold, seconds: float) -> Amount:
    seconds = round(seconds, 9)
    return Amount(gpu_s=seconds) if hold.on_gpu else Amount(cpu_s=seconds)


def _filled(**rows: object) -> tuple[str, ...]:
    """The tables that a settlement writes rows into."""
    return ("results", *(table for table, given in rows.items() if given not in (None, (), [])))


def _same_call(hold: OpenHold, account: str | None = None) -> dict[str, Any]:
    return {**hold.call, "account_id": account or hold.account_id}

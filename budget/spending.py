"""Ending a hold: extend raises it once, settle or release ends it. Each is one immediate transaction."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kernelgate.budget.admission import Admission
from kernelgate.budget.artifacts import Artifacts
from kernelgate.budget.chain import Event, append
from kernelgate.budget.errors import HoldClosed
from kernelgate.budget.model import HOUSE, Amount, Purse, ReleaseReason, Rung, UnjudgedReason
from kernelgate.budget.outcomes import Extended, Refused, Released, Settled
from kernelgate.budget.purse import Shortage, charge, overrun, plus, shortage, trimmed
from kernelgate.budget.records import ArtifactInput, Head, Json, ResultInput, SampleInput
from kernelgate.budget.rows import insert, insert_observation, insert_samples, rows_of_result
from kernelgate.budget.runs import purse_text
from kernelgate.tasks.model import canonical_json

ABOVE_THE_HOLD: Final = "measured above the hold"
"""Why a settle is followed by an overrun."""


class Spending(Admission, Artifacts):
    """What happens to a hold after it was admitted."""

    def extend(self, hold_seq: int, more: Amount) -> Extended | Refused:
        """Raise a hold, once: device and work seconds by what was asked, or by what is left if that is less.

        Refused where nothing is left of one of the two.

        Raises:
            HoldClosed: the hold has ended, or was extended before.
        """
        with self.transaction() as connection:
            hold = self._open_hold(hold_seq)
            if self._extension(hold_seq) is not None:
                raise HoldClosed(f"hold {hold_seq} was extended before; it happens once")
            purse = self.purse(hold["run_id"])
            asked, rung = more.model_copy(update={"calls": 0}), Rung(hold["rung"])
            account_s_left = self._account_s_left(hold["account_id"])
            lacking = shortage(purse, account_s_left, rung, asked, Amount())
            if lacking is not None:
                return self._refuse_extension(hold, purse, lacking)
            extra = trimmed(purse, account_s_left, asked)
            after = purse.model_copy(update={"open": purse.open.plus(rung, extra)})
            event = Event(**_same_call(hold), kind="extend", hold_seq=hold_seq, **extra.model_dump(),
                          purse_json=purse_text(after))  # fmt: skip
            head = append(connection, self._clock, event)
            return Extended(hold=plus(_amount(hold), extra), purse=after, head=head)

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
        hold = self._open_hold(hold_seq)
        if hold["rung"] != result.rung.value:
            raise ValueError(f"hold {hold_seq} is for {hold['rung']}, the result is of {result.rung}")
        kept = self._keep(hold["run_id"], artifacts)
        with self.transaction() as connection:
            hold = self._open_hold(hold_seq)
            held = self._held(hold)
            charged, over = charge(measured, held), overrun(measured, held)
            result_id = self._write_result(hold, result, charged, over.device_s)
            insert_samples(connection, result_id, samples)
            self._list(result_id, kept)
            if observation is not None:
                insert_observation(connection, hold["environment_id"], result_id, observation, self._clock.utc())
            after = self._purse_after(hold, held, charged)
            event = Event(**_same_call(hold), kind="settle", hold_seq=hold_seq, **charged.model_dump(),
                          overrun_s=over.device_s, reason=result.verdict.value, purse_json=purse_text(after),
                          rows_sha256=rows_of_result(connection, result_id).digest())  # fmt: skip
            head = append(connection, self._clock, event)
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
            hold = self._open_hold(hold_seq)
            held = self._held(hold)
            charged, over = charge(measured, held), overrun(measured, held)
            after = self._purse_after(hold, held, charged)
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
            hold = self._open_hold(hold_seq)
            held = self._held(hold)
            after = self._purse_after(hold, held, Amount())
            text = f"{reason}: {detail}" if detail else reason
            event = Event(**_same_call(hold), kind="release", hold_seq=hold_seq, **held.model_dump(), reason=text,
                          purse_json=purse_text(after))  # fmt: skip
            head = append(connection, self._clock, event)
            head = self._book_overrun(hold, self._device_amount(hold, house_s), text, after) or head
            return Released(reason=reason, purse=after, head=head)

    def held(self, hold_seq: int) -> Amount:
        """All that an open hold holds, with its extension; raises HoldClosed."""
        return self._held(self._open_hold(hold_seq))

    def _refuse_extension(self, hold: Mapping[str, Any], purse: Purse, lacking: Shortage) -> Refused:
        kind, why, missing = lacking
        event = Event(**_same_call(hold), kind="refuse", hold_seq=hold["seq"], refusal_kind=kind,
                      reason=f"Hold {hold['seq']} cannot be raised: {why}", missing=missing)  # fmt: skip
        return self._write_refusal(event, purse, kind)

    def _write_result(self, hold: Mapping[str, Any], result: ResultInput, charged: Amount, overrun_s: float) -> int:
        """Write the result just before the settle event whose number it carries."""
        origin = self._row(
            """SELECT c.source_sha256, r.task_digest FROM candidates c JOIN runs r ON r.run_id = c.run_id
            WHERE c.candidate_id = ?""",
            hold["candidate_id"],
        )
        score = result.score
        with self.transaction() as connection:
            return insert(connection, "results", {
                "event_seq": self.head().seq + 1, "run_id": hold["run_id"], "candidate_id": hold["candidate_id"],
                **(origin or {}), "workload_set": result.workload_set, "plan_digest": result.plan_digest,
                "rung": result.rung.value, "environment_id": hold["environment_id"],
                "verdict": result.verdict.value, "code": result.code, "report_json": canonical_json(result.report),
                "ratio": score and score.ratio, "ratio_low": score and score.low, "ratio_high": score and score.high,
                "gpu_s": charged.gpu_s, "cpu_s": charged.cpu_s, "work_s": charged.work_s, "overrun_s": overrun_s,
                "house_s": result.house_s, "queue_s": result.queue_s, "prepare_s": result.prepare_s,
                "wall_s": result.wall_s, "created_utc": self._clock.utc(),
            })  # fmt: skip

    def _device_amount(self, hold: Mapping[str, Any], seconds: float) -> Amount:
        on_gpu, seconds = self.run(hold["run_id"]).device_kind == "cuda", round(seconds, 9)
        return Amount(gpu_s=seconds) if on_gpu else Amount(cpu_s=seconds)

    def _book_overrun(self, hold: Mapping[str, Any], over: Amount, reason: str, purse: Purse) -> Head | None:
        """Book on the house what a hold does not pay: the event right behind the one that ended it."""
        if over == Amount():
            return None
        event = Event(**_same_call(hold, HOUSE), kind="overrun", hold_seq=hold["seq"], **over.model_dump(),
                      overrun_s=over.device_s, reason=reason, purse_json=purse_text(purse))  # fmt: skip
        with self.transaction() as connection:
            self.record_account(HOUSE)
            return append(connection, self._clock, event)

    def _open_hold(self, hold_seq: int) -> Mapping[str, Any]:
        hold = self._hold(hold_seq)
        ended = self._row("SELECT seq, kind FROM events WHERE hold_seq = ? AND kind IN ('settle', 'release')", hold_seq)
        if ended is not None:
            raise HoldClosed(f"hold {hold_seq} has ended: event {ended['seq']} is its {ended['kind']}")
        return hold

    def _extension(self, hold_seq: int) -> Mapping[str, Any] | None:
        return self._row("SELECT * FROM events WHERE hold_seq = ? AND kind = 'extend'", hold_seq)

    def _held(self, hold: Mapping[str, Any]) -> Amount:
        extension = self._extension(hold["seq"])
        return _amount(hold) if extension is None else plus(_amount(hold), _amount(extension))

    def _purse_after(self, hold: Mapping[str, Any], held: Amount, charged: Amount) -> Purse:
        rung, purse = Rung(hold["rung"]), self.purse(hold["run_id"])
        opened, settled = purse.open.plus(rung, held, -1), purse.settled.plus(rung, charged)
        return purse.model_copy(update={"open": opened, "settled": settled})


def _amount(row: Mapping[str, Any]) -> Amount:
    return Amount(**{name: row[name] for name in Amount.model_fields})


def _same_call(hold: Mapping[str, Any], account: str | None = None) -> dict[str, Any]:
    call = {name: hold[name] for name in ("run_id", "candidate_id", "job_id", "rung", "environment_id")}
    return {**call, "account_id": account or hold["account_id"]}

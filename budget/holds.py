"""An open hold with all that ending it needs, read in one statement: while it is read, every other writer waits."""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kernelgate.budget.errors import HoldClosed, UnknownId
from kernelgate.budget.model import Amount, Purse, Rung
from kernelgate.budget.purse import plus
from kernelgate.budget.reads import Reads

Call: TypeAlias = dict[str, str]
_HOLD: Final = """
SELECT h.account_id, h.run_id, h.candidate_id, h.job_id, h.rung, h.environment_id,
  h.calls, h.override_calls, h.gpu_s, h.cpu_s, h.work_s, x.seq, x.gpu_s, x.cpu_s, x.work_s, z.seq, z.kind,
  (SELECT purse_json FROM events e WHERE e.run_id = h.run_id ORDER BY seq DESC LIMIT 1),
  c.source_sha256, r.task_digest, r.device_kind
FROM events h
JOIN runs r ON r.run_id = h.run_id
JOIN candidates c ON c.candidate_id = h.candidate_id
LEFT JOIN events x ON x.hold_seq = h.seq AND x.kind = 'extend'
LEFT JOIN events z ON z.hold_seq = h.seq AND z.kind IN ('settle', 'release')
WHERE h.seq = ? AND h.kind IN ('hold', 'override')"""


@dataclass(frozen=True, slots=True)
class OpenHold:
    """A hold that has not ended."""

    seq: int
    account_id: str
    call: Call
    """The columns that every event of the call shares: run, candidate, job, rung, environment."""
    rung: Rung
    held: Amount
    """All that is held, with the extension."""
    extended: bool
    purse: Purse
    """Of the run, as it stands."""
    source_sha256: str
    task_digest: str
    on_gpu: bool

    @property
    def run_id(self) -> str:
        """The run that pays."""
        return self.call["run_id"]

    def purse_after(self, charged: Amount) -> Purse:
        """The purse once the hold has ended and so much of it was charged."""
        return self.purse.ended(self.rung, self.held, charged)


class Holds(Reads):
    """Looking up what is held."""

    def open_hold(self, hold_seq: int) -> OpenHold:
        """A hold that is still open; raises UnknownId and HoldClosed."""
        row = self._tuple(_HOLD, hold_seq)
        if row is None:
            raise UnknownId(f"there is no hold {hold_seq}")
        if row[15] is not None:
            raise HoldClosed(f"hold {hold_seq} has ended: event {row[15]} is its {row[16]}")
        held = _amount(row[6:11])
        if row[11] is not None:
            held = plus(held, _amount((0, 0, *row[12:15])))
        return OpenHold(
            seq=hold_seq,
            account_id=row[0],
            call=dict(zip(("run_id", "candidate_id", "job_id", "rung", "environment_id"), row[1:6], strict=True)),
            rung=Rung(row[4]),
            held=held,
            extended=row[11] is not None,
            purse=Purse.model_validate_json(row[17]),
            source_sha256=row[18],
            task_digest=row[19],
            on_gpu=row[20] == "cuda",
        )

    def held(self, hold_seq: int) -> Amount:
        """All that an open hold holds, with its extension; raises UnknownId and HoldClosed."""
        return self.open_hold(hold_seq).held


def _amount(cells: tuple[Any, ...]) -> Amount:
    calls, override_calls, gpu_s, cpu_s, work_s = cells
    return Amount(calls=calls, override_calls=override_calls, gpu_s=gpu_s, cpu_s=cpu_s, work_s=work_s)

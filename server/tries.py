"""The work of an admitted rung: tried again after a fault, probed, over several processes, within its hold."""

import logging
from typing import Final

from kernelgate.budget.model import Amount, Rung
from kernelgate.budget.outcomes import Admitted, Extended
from kernelgate.budget.purse import plus
from kernelgate.server.environment import device_amount
from kernelgate.server.health import is_doubtful
from kernelgate.server.measure import examined, measure
from kernelgate.server.passages import behind, limit_s_of, wants_more, with_more
from kernelgate.server.services import AnyMeasuringTool, Door, Services
from kernelgate.server.work import Job
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.wire import ChildExit, WorkerReply

log = logging.getLogger("kernelgate")

ENDED_IT: Final = "purse_ended_it"
"""In a reply's observation: which part of the purse could not carry the work to the rung's limit."""


async def run_within_hold(
    services: Services, job: Job, door: Door, tool: AnyMeasuringTool, plan: Frozen, admitted: Admitted
) -> WorkerReply:
    """The worker's reply; a hold that was reached is extended once."""
    held_s = admitted.hold.gpu_s + admitted.hold.cpu_s
    cap_s = held_s if tool.rung is not Rung.compile else limit_s_of(tool, door.candidate.language)
    reply = await _in_processes(services, job, door, tool, plan, cap_s)
    if reply.fault or reply.exit.kind != "cap_reached" or cap_s >= tool.limit_s:
        return reply
    # The estimate was too small: that says nothing about the candidate. Only the rung's own limit does.
    spent_s = reply.lease_s
    work_s = max(0.0, tool.limit_s + reply.wall_s - admitted.hold.work_s)
    more = device_amount(door.device, tool.limit_s + spent_s - held_s, calls=0, work_s=work_s)
    extended = await services.ledger.do(lambda ledger: ledger.extend(admitted.hold_seq, more))
    if not isinstance(extended, Extended):
        return reply.model_copy(update={"observation": {**reply.observation, ENDED_IT: extended.kind}})
    job.earlier = device_amount(door.device, spent_s, calls=0, work_s=reply.wall_s)
    again = await _in_processes(services, job, door, tool, plan, tool.limit_s)
    return behind(reply, again)


async def _in_processes(
    services: Services, job: Job, door: Door, tool: AnyMeasuringTool, plan: Frozen, cap_s: float
) -> WorkerReply:
    """The worker's reply, over as many fresh processes of the candidate as the tool wants, within one limit."""
    reply = await _tried(services, job, door, tool, plan, cap_s)
    earlier = job.earlier
    while wants_more(tool, plan, reply):
        job.earlier = plus(earlier, device_amount(door.device, reply.lease_s, calls=0, work_s=reply.wall_s))
        left_s = cap_s - reply.lease_s
        if left_s <= 0:  # what ends inside the lease behind the last answer may have reached the limit
            return reply.model_copy(update={"facts": None, "exit": ChildExit(kind="cap_reached")})
        further = await _tried(services, job, door, tool, plan, left_s)
        reply = with_more(tool, reply, further)
    return reply


async def _tried(
    services: Services, job: Job, door: Door, tool: AnyMeasuringTool, plan: Frozen, cap_s: float
) -> WorkerReply:
    """The worker's reply; of a rung one fault is tried again, wherever it happens, and paid by the house."""
    reply = await _once(services, job, door, tool, plan, cap_s)
    if not reply.fault or job.faults > 0 or job.cancel_wanted or trouble_of(services, door, tool):
        return reply
    log.warning("%s of %s is tried again: %s", tool.name, door.candidate.candidate_id, reply.fault)
    job.faults += 1
    again = await _once(services, job, door, tool, plan, cap_s)
    return again.model_copy(update={"house_s": again.house_s + reply.lease_s + reply.house_s})


async def _once(
    services: Services, job: Job, door: Door, tool: AnyMeasuringTool, plan: Frozen, cap_s: float
) -> WorkerReply:
    """The worker's reply; where it ended so that a GPU may be to blame, a probe tells before anything is judged."""
    reply = await measure(services, job, door, tool, plan, cap_s)
    if tool.rung is Rung.compile or not is_doubtful(door.device, reply):
        return reply
    job.progress("probing the device", 0, 0)
    begun_s, earlier = job.begun_s, job.earlier
    # Should the server leave meanwhile: the probe is the house's, and what is under judgement has been used.
    ran = Amount() if reply.fault else device_amount(door.device, reply.lease_s, calls=0, work_s=reply.wall_s)
    job.begun_s, job.earlier = None, plus(earlier, ran)
    reply = await examined(services, door, reply)
    job.begun_s, job.earlier = begun_s, earlier
    return reply


def trouble_of(services: Services, door: Door, tool: AnyMeasuringTool) -> str:
    """Why the GPU that a rung needs is set aside; empty if it is not, or none is needed."""
    return "" if tool.rung is Rung.compile else services.health_of(door.device).trouble(door.device)

"""How a job ends: what is told of it is what stands in the book."""

from typing import Any

import anyio
import pytest
from pydantic import JsonValue

from kernelgate.server.work import Job, Workshop


@pytest.mark.anyio
@pytest.mark.parametrize(("wished", "outcome"), [("before", "cancelled"), ("while it is written", "done")])
async def test_a_wish_to_cancel_counts_until_the_end_is_written_and_not_later(wished: str, outcome: str) -> None:
    async def work(job: Job) -> dict[str, JsonValue]:
        if wished == "before":
            job.ask_to_end()
        booked.append("cancelled" if job.ends_cancelled() else "done")
        job.ask_to_end()
        return {"status": "ok"}

    booked: list[Any] = []
    job = Job("j1", "local", "compile", "r1", "c1", "key")
    async with anyio.create_task_group() as group:
        workshop = Workshop(group)
        workshop.start(job, work)
        assert await workshop.wait(job, 5.0, None)
    assert (job.state, booked) == (outcome, [outcome])

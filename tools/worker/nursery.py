"""Where the children of one supervisor are made and cleared away: each with its walls, its scratch and its caches."""

import asyncio
import os
import socket
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import processes
from kernelgate.tools.worker.cache_guard import CacheGuard
from kernelgate.tools.worker.calls import Call
from kernelgate.tools.worker.channel import Message
from kernelgate.tools.worker.children import Child, spawn
from kernelgate.tools.worker.conductor import Answer, Conductor
from kernelgate.tools.worker.confine import Host
from kernelgate.tools.worker.folders import (
    Caches,
    Scratches,
    caches_of,
    make_caches,
    shared_cache,
    shared_memory_names,
    sweep_shared_memory,
)
from kernelgate.tools.worker.parts import Parts
from kernelgate.tools.worker.plans import CannotFork, Plan
from kernelgate.tools.worker.roles import Mode, Roles
from kernelgate.tools.worker.sealed import Envelope, Sealed

BEGIN_LIMIT_S: Final = 30.0
"""From a fork to a child behind its walls; takes tens of milliseconds."""


@dataclass(frozen=True)
class Spare:
    """A candidate's process that waits for its first question, and for a call that it is for."""

    digest: str
    task_name: str
    child: Child
    scratch: Path
    sock: socket.socket
    """The referee's end of the line."""
    shared_memory: frozenset[str] | None

    def fits(self, request: Envelope) -> bool:
        """Whether it is what the call would fork."""
        return (
            bool(request.digest)
            and not request.hidden
            and (self.digest, self.task_name) == (request.digest, request.task_name)
        )


class MustReplace(Exception):
    """This process has more than one thread and must not fork: it replaces itself first."""


class Nursery:
    """Makes candidates, builders and referees, and sees to it that nothing of them stays.

    Args:
        host: What the survey found.
        device: For whom.
        state_dir: Scratches and caches lie under it.
        parts: What the children run.
        unforkable: Why no child may be forked although the process is fresh; empty if it may.
    """

    def __init__(self, host: Host, device: DeviceRef, state_dir: Path, parts: Parts, unforkable: str) -> None:
        """Walks python's folders once for the walls."""
        self._host, self._state_dir, self._parts, self._unforkable = host, state_dir, parts, unforkable
        self._roles = Roles.on(host, device, state_dir)
        self._children: set[Child] = set()
        self.scratches = Scratches(state_dir)

    async def candidate(self, call: Call, conn: socket.socket, mode: Mode) -> Caches:
        """Fork the candidate of a call; it holds the only copy of its end of the socket afterwards."""
        caches = self._caches_of(call.request)
        plan = self._candidate_plan(call.request, call.sealed, self._scratch_of(call), caches, conn, mode)
        if plan.walls.shared_memory:
            call.shared_memory = shared_memory_names()
        if call.request.hidden:
            call.caches = CacheGuard(caches.triton.parent)
        call.candidate = await self._fork(plan)
        conn.close()
        await call.candidate.begun(BEGIN_LIMIT_S)
        return caches

    async def spare(self, request: Envelope, sealed: Sealed) -> Spare:
        """Fork a candidate for a call that has not come yet, and have it start CUDA; raises `CannotFork`.

        `request`, `sealed`: of a call on the same source.
        """
        scratch = self.scratches.make(self._host.uid)
        mine, theirs = socket.socketpair()
        child: Child | None = None
        try:
            with theirs:
                plan = self._candidate_plan(request, sealed, scratch, self._caches_of(request), theirs, "run")
                before = shared_memory_names() if plan.walls.shared_memory else None
                child = await self._fork(replace(plan, warm=self._parts.candidate_warm))
            await child.begun(BEGIN_LIMIT_S)
            await child.warmed(BEGIN_LIMIT_S)
        except BaseException:
            mine.close()
            await self.dismiss(child, scratch)
            raise
        return Spare(request.digest, request.task_name, child, scratch, mine, before)

    async def dismiss(self, child: Child | None, scratch: Path) -> None:
        """End a child that no call has, and remove its scratch."""
        if child is not None:
            child.kill()
            await child.gone()
            child.capture.close()
            self._children.discard(child)
        await self.scratches.remove(scratch)

    async def builder(
        self, call: Call, caches: Caches, candidate: socket.socket
    ) -> tuple[Conductor, "asyncio.Future[Answer]"]:
        """Fork the builder of a compile, which starts at once; its answer is already expected when it does.

        `candidate`, the builder's end of the socket to the candidate, is copied into it.
        """
        scratch = self._scratch_of(call)
        control, theirs = socket.socketpair()
        with theirs:
            body = partial(self._parts.builder_serve, theirs, call.sealed, candidate)
            walls = self._roles.builder(scratch, caches)
            builder = await self._conductor(Plan("builder", walls, body, (theirs, call.sealed, candidate)), control)
        answer = builder.expect(call.request.request_id, call.candidate, call.progress)
        await self._begun(builder)
        return builder, answer

    async def referee(self) -> tuple[Conductor, Path]:
        """Fork the referee; remove its scratch when it has ended."""
        caches = caches_of(str(self._state_dir), self._roles.device, "")
        make_caches(caches, self._host.uid)
        scratch = self.scratches.make(self._host.uid)
        control, theirs = socket.socketpair()
        with theirs:
            body = partial(self._parts.referee_serve, theirs)
            referee = await self._conductor(
                Plan("referee", self._roles.referee(scratch, caches), body, (theirs,)), control
            )
        await self._begun(referee)
        return referee, scratch

    async def end(self, conductor: Conductor, call: Call | None = None) -> None:
        """Kill a conductor and forget it; a call takes what it had printed, if it printed anything."""
        await conductor.end()
        self._children.discard(conductor.child)
        log = conductor.child.capture
        if call is not None and call.house_log is None and log.kept.written_bytes:
            call.house_log = log
        else:
            log.close()

    async def clean_up(self, call: Call) -> None:
        """Nothing of a call stays: processes, scratches, shared memory. Its caches do."""
        if call.candidate is not None:
            call.candidate.kill()
            await call.candidate.gone()
            self._children.discard(call.candidate)
        self.sweep_strangers()
        if call.shared_memory is not None and self._host.uid is not None:
            sweep_shared_memory(call.shared_memory, self._host.uid)
        if call.caches is not None and not call.caches.put_back():
            await self.scratches.remove(call.caches.root)
        for scratch in call.scratches:
            await self.scratches.remove(scratch)

    def sweep_strangers(self) -> None:
        """Kill and reap what hangs below us and was not started by us: it had escaped a keeper that died early."""
        known = {child.keeper_pid for child in self._children} | self.scratches.helpers
        for pid in processes.children(os.getpid()):
            if pid not in known:
                processes.kill_with_tree(pid)
                os.waitpid(pid, 0)

    async def kill_all(self) -> None:
        """End every child."""
        children = list(self._children)
        for child in children:
            child.kill()
        await asyncio.gather(*(child.gone() for child in children))

    async def _conductor(self, plan: Plan, control: socket.socket) -> Conductor:
        try:
            return Conductor(plan.name, await self._fork(plan), control)
        except (CannotFork, MustReplace):
            control.close()
            raise

    async def _begun(self, conductor: Conductor) -> None:
        try:
            await conductor.child.begun(BEGIN_LIMIT_S)
        except CannotFork:
            await self.end(conductor)
            raise

    async def _fork(self, plan: Plan) -> Child:
        if self._unforkable:
            raise CannotFork(self._unforkable)
        if processes.thread_count() != 1:
            raise MustReplace
        return await spawn(plan, self._children)

    def _caches_of(self, request: Envelope) -> Caches:
        caches = caches_of(request.state_dir, self._roles.device, request.digest or "unnamed")
        make_caches(caches, self._host.uid, shared_cache(self._state_dir))
        return caches

    def _candidate_plan(
        self, request: Envelope, sealed: Sealed, scratch: Path, caches: Caches, conn: socket.socket, mode: Mode
    ) -> Plan:
        body = partial(self._parts.candidate_serve, conn, _start_of(request, scratch, caches, mode))
        walls = self._roles.candidate(scratch, caches, mode)
        return Plan("candidate", walls, body, (conn,), files=sealed)

    def _scratch_of(self, call: Call) -> Path:
        scratch = self.scratches.make(self._host.uid)
        call.scratches.append(scratch)
        return scratch


def _start_of(request: Envelope, scratch: Path, caches: Caches, mode: Mode) -> Message:
    """What a candidate's process is told."""
    return {
        "scratch": str(scratch),
        "cache": str(caches.triton),
        "mode": mode,
        "device": request.device.model_dump(mode="json"),
        "language": request.language,
        "task_name": request.task_name,
    }

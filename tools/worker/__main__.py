"""`python -P -m kernelgate.tools.worker`: the supervisor of one device. Started by `SupervisorRunner`, not by hand."""

import argparse
import asyncio
import gc
import os
import socket
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import confine, frames, landlock, processes
from kernelgate.tools.worker.calls import ANSWER_GRACE_S
from kernelgate.tools.worker.folders import shared_cache
from kernelgate.tools.worker.lease import LEASE_FOLDER
from kernelgate.tools.worker.parts import Parts, Versions, load_parts
from kernelgate.tools.worker.plans import CannotFork
from kernelgate.tools.worker.supervisor import QUEUE_LIMIT_S, Settings, Supervisor, Unanswered
from kernelgate.tools.worker.survey import Survey, survey


@dataclass(frozen=True)
class _Start:
    """What a fresh supervisor begins with."""

    sock: socket.socket
    settings: Settings
    parts: Parts
    versions: Versions
    unforkable: str
    resumed: bytes | None
    sealed: list[int]


def main(arguments: list[str]) -> None:
    """Import what children need, then serve until the server's socket closes."""
    options = _options().parse_args(arguments)
    os.set_inheritable(options.server, False)  # noqa: FBT003 -- the standard library takes it by position
    confine.become_subreaper()
    device = DeviceRef.model_validate_json(options.device)
    parts = load_parts(options.parts)
    versions = parts.preload(device, shared_cache(options.state_dir.resolve()))
    threads = processes.thread_count()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of what was imported
    settings = Settings(
        device,
        options.state_dir.resolve(),
        options.lease_dir,
        options.queue_limit_s,
        options.namespaces,
        options.grace_s,
    )
    start = _Start(
        sock=socket.socket(fileno=options.server),
        settings=settings,
        parts=parts,
        versions=versions,
        unforkable="" if threads == 1 else f"{threads} threads run after the imports, so no child can be forked safely",
        resumed=_read_all(options.resumed) if options.resumed >= 0 else None,
        sealed=options.sealed,
    )
    for descriptor in options.sealed:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 -- the standard library takes it by position
    asyncio.run(_serve(start, partial(_replace, options.server, arguments)))
    sys.stderr.flush()
    os._exit(0)  # taking torch apart takes a second, in which nobody is served


async def _serve(start: _Start, replace: "partial[None]") -> None:
    unforkable = start.unforkable
    try:
        found = await survey(start.settings.device, start.settings.state_dir, namespaces=start.settings.namespaces)
    except CannotFork as error:
        unforkable = unforkable or str(error)
        found = Survey(confine.Host(landlock_abi=landlock.landlock_abi()), (), (unforkable,))
    supervisor = Supervisor(start.sock, start.settings, start.parts, start.versions, found, replace, unforkable)
    await supervisor.serve(data=start.resumed or b"", sealed=start.sealed, greet=start.resumed is None)


def _replace(server: int, arguments: list[str], left: Unanswered) -> None:
    """Become a fresh process on the same socket, which reads first what this one leaves unanswered."""
    unanswered = os.memfd_create("unanswered")
    for envelope in left.envelopes:
        _write_all(unanswered, frames.encode(envelope.model_dump(mode="json")))
    _write_all(unanswered, left.rest)
    for descriptor in (server, unanswered, *left.sealed):
        os.set_inheritable(descriptor, True)  # noqa: FBT003 -- the standard library takes it by position
    kept = arguments[: arguments.index("--resumed")] if "--resumed" in arguments else arguments
    command = [sys.executable, "-P", "-m", "kernelgate.tools.worker", *kept, "--resumed", str(unanswered)]
    command += ["--sealed", *map(str, left.sealed)] if left.sealed else []
    os.execv(sys.executable, command)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read_all(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb") as file:
        return file.read()


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kernelgate.tools.worker", allow_abbrev=False)
    parser.add_argument("--server", type=int, required=True, help="descriptor of the socket to the server")
    parser.add_argument("--device", required=True, help="DeviceRef as JSON")
    parser.add_argument("--state-dir", type=Path, required=True, help="where scratches and caches lie")
    parser.add_argument("--lease-dir", type=Path, default=LEASE_FOLDER, help="where device leases lie")
    parser.add_argument("--queue-limit-s", type=float, default=QUEUE_LIMIT_S, help="longest wait for a lease")
    parser.add_argument("--grace-s", type=float, default=ANSWER_GRACE_S, help="for an answer after a call was cut")
    parser.add_argument(
        "--no-namespaces", dest="namespaces", action="store_false", help="landlock only, as without root"
    )
    parser.add_argument("--parts", default="kernelgate.tools.worker.torch_parts", help="module with what children run")
    parser.add_argument("--resumed", type=int, default=-1, help="descriptor with what a predecessor left unanswered")
    parser.add_argument("--sealed", type=int, nargs="+", default=[], help="descriptors of its sealed requests")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])

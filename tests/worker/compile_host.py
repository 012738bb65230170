"""A stand-in for the supervisor in tests of compiling: forks a candidate and a builder for each request.

`CompileHost` is what tests use; `main` runs in a process of its own, which imports torch once and runs no operation.
Candidates here are the tests' own; they are not walled off, only bounded in time and memory.
"""

import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from kernelgate.tasks.model import Candidate, Task
from kernelgate.tools.compile import CompileFacts, CompilePlan, CompileReport, judge
from kernelgate.tools.kit.wire import ChildExit, DeviceRef

ANSWER_TIMEOUT_S = 100.0
MEMORY_BYTES = 12 << 30


class Outcome(NamedTuple):
    """What came of one compile."""

    facts: CompileFacts | None
    exit: ChildExit
    report: CompileReport
    cache: Path
    log: str
    progress: list[str]


class CompileHost:
    """Starts the process on entry; one compile at a time."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._count = 0

    def __enter__(self) -> "CompileHost":
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def compile(
        self, source: str | dict[str, str], task: Task, *, cap_s: float = 60.0, target: str = "sm_90", gpu: bool = False
    ) -> Outcome:
        """One candidate through `builder.serve_one` and `candidate.serve`, judged; `gpu`: as for a run on one."""
        device = DeviceRef(kind="cuda", uid="GPU-none", target=target) if gpu else DeviceRef(kind="cpu", target=target)
        candidate = Candidate(files=source if isinstance(source, dict) else {"candidate.py": source})
        self._count += 1
        scratch = self._state_dir / f"scratch-{self._count}"
        (scratch / "candidate").mkdir(parents=True)
        for name, text in candidate.files.items():
            (scratch / "candidate" / name).write_text(text)
        request = {
            "request_id": self._count,
            "procedure": "compile",
            "task": task.model_dump(mode="json"),
            "files": candidate.files,
            "digest": candidate.digest,
            "plan": {},
            "device": device.model_dump(mode="json"),
            "state_dir": str(self._state_dir),
            "language": candidate.language,
            "scratch": str(scratch),
            "cap_s": cap_s,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        assert readable, "the compile host did not answer"
        answer = json.loads(self._process.stdout.readline())
        assert answer["op"] == "done", answer.get("error")
        facts = None if answer["facts"] is None else CompileFacts.model_validate_json(json.dumps(answer["facts"]))
        ended = ChildExit.model_validate(answer["exit"])
        cache = self._state_dir / "cache" / device.uid / candidate.digest / "triton"
        log = (scratch / "log").read_text(errors="replace")
        return Outcome(facts, ended, judge(facts, ended, CompilePlan()), cache, log, answer["progress"])


def _fork(body: Any, log: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.setsid()
        body()
        status = 0
    finally:
        os._exit(status)


def _conduct(request: dict[str, Any]) -> dict[str, Any]:
    from harness import heard

    from kernelgate.tools.worker import builder, candidate
    from kernelgate.tools.worker.folders import caches_of

    caches = caches_of(request["state_dir"], DeviceRef.model_validate(request["device"]), request["digest"])
    cache = caches.triton
    for folder in (cache, caches.extensions):
        folder.mkdir(parents=True, exist_ok=True)
    start = {key: request[key] for key in ("scratch", "device", "language")} | {"mode": "trace", "cache": str(cache)}
    (candidate_end, builder_end), (near, far) = socket.socketpair(), socket.socketpair()
    log = os.open(Path(request["scratch"], "log"), os.O_WRONLY | os.O_CREAT)

    def be_candidate() -> None:
        os.environ.update({"TRITON_CACHE_DIR": str(cache), "CUDA_VISIBLE_DEVICES": "", "HOME": request["scratch"]})
        os.environ.update({"TORCH_EXTENSIONS_DIR": str(caches.extensions), "TORCH_CUDA_ARCH_LIST": "9.0"})
        os.environ.pop("TRITON_INTERPRET", None)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        for other in (builder_end, near, far):
            other.close()
        os.chdir(request["scratch"])
        candidate.serve(candidate_end, start)

    def be_builder() -> None:
        candidate_end.close()
        near.close()
        builder.serve_one(far, request, builder_end)

    children = [_fork(be_candidate, log), _fork(be_builder, log)]
    os.close(log)
    for other in (candidate_end, builder_end, far):
        other.close()
    progress: list[str] = []
    killed = False
    deadline = time.monotonic() + request["cap_s"]
    while True:
        readable, _, _ = select.select([near], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            killed, deadline = True, time.monotonic() + 20
            os.killpg(children[0], signal.SIGKILL)
            continue
        received = heard(near)
        if received is None:
            answer: dict[str, Any] = {"op": "failed", "error": "the builder ended without an answer"}
            break
        if received["op"] == "progress":
            progress.append(str(received["stage"]))
        else:
            answer = received
            break
    near.close()
    exits = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return answer | {"exit": _exit_of(exits[0], killed=killed), "progress": progress}


def _exit_of(code: int, *, killed: bool) -> dict[str, Any]:
    if killed:
        return {"kind": "cap_reached"}
    if code < 0:
        return {"kind": "signalled", "status": -code}
    return {"kind": "exited", "status": code} if code else {"kind": "finished"}


def main() -> None:
    """Answer requests, one JSON object a line, until standard input ends."""
    sys.path.append(str(Path(__file__).parent))
    for module in ("kernelgate.tools.worker.builder", "kernelgate.tools.worker.candidate"):
        importlib.import_module(module)  # once, for all children
    importlib.import_module("kernelgate.tools.worker.fake_cuda").preload_dynamo()
    importlib.import_module("kernelgate.tools.kit.catalogue").procedure("compile")
    for line in sys.stdin:
        print(json.dumps(_conduct(json.loads(line))), flush=True)  # noqa: T201 -- the answer
    os._exit(0)  # torch takes seconds to say goodbye


if __name__ == "__main__":
    main()

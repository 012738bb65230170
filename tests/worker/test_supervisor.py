"""One call from request to reply: how it may end, what it costs, and that nothing of it stays."""

import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from supervised import CPU, ignore, make_request, make_runner
from synthetic import noisy, timing

from kernelgate.tools.kit.pairing import MAX_CALLS, MOST_VOIDED
from kernelgate.tools.kit.runner import SupervisorRunner
from kernelgate.tools.kit.timing_report import TimingFacts
from kernelgate.tools.kit.wire import ANSWER_LIMIT_BYTES, FRAME_LIMIT_BYTES, LOG_LIMIT_BYTES, Progress, WorkerReply
from kernelgate.tools.precise_time import LOOKS
from kernelgate.tools.worker import frames, processes
from kernelgate.tools.worker.lease import Lease

pytestmark = pytest.mark.anyio

HELLO = "def main():\n    print('hello')\n    return 42\n"
HANG = "import threading\ndef main():\n    threading.Event().wait()\n"


@pytest.fixture(params=["namespaces", "landlock only"])
async def runner(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SupervisorRunner]:
    made = make_runner(tmp_path, namespaces=request.param == "namespaces", grace_s=2.0)
    yield made
    await made.close()


@pytest.fixture
async def walled(tmp_path: Path) -> AsyncIterator[SupervisorRunner]:
    """Only as strong as the host allows, for what does not depend on the walls."""
    made = make_runner(tmp_path, grace_s=1.0, queue_limit_s=0.5)
    yield made
    await made.close()


def family(runner: SupervisorRunner) -> set[int]:
    assert runner.supervisor_pid is not None
    return set(processes.descendants(runner.supervisor_pid))


async def call(runner: SupervisorRunner, folder: Path, source: str | None, *ask: str, **rest: object) -> WorkerReply:
    return await runner.run(make_request(folder / "state", source, *ask, **rest), ignore)  # type: ignore[arg-type]  # keywords of any kind


async def test_a_call_brings_back_facts_log_times_and_how_it_ended(runner: SupervisorRunner, tmp_path: Path) -> None:
    heard: list[Progress] = []
    reply = await runner.run(make_request(tmp_path / "state", HELLO, "main"), heard.append)
    assert (reply.facts, reply.exit.kind, reply.fault, reply.log) == ([42], "finished", "", "hello\n")
    assert 0 < reply.lease_s < 5
    assert reply.house_s > 0
    assert reply.prepare_s == 0.25
    assert "rlimits" in reply.observation["confinement"]
    assert [progress.stage for progress in heard] == ["begun"]


async def test_the_referee_stays_between_calls_and_the_candidate_does_not(
    runner: SupervisorRunner, tmp_path: Path
) -> None:
    first = await call(runner, tmp_path, HELLO, "main")
    resident = family(runner)
    second = await call(runner, tmp_path, HELLO, "main")
    assert (first.observation["calls"], second.observation["calls"]) == (1, 2)
    assert first.observation["pid"] == second.observation["pid"]
    assert family(runner) == resident
    assert list((tmp_path / "state" / "scratch").iterdir()) != []  # the referee's
    assert len(list((tmp_path / "state" / "scratch").iterdir())) == 1


async def test_a_hundred_megabytes_of_output_neither_block_nor_stay(runner: SupervisorRunner, tmp_path: Path) -> None:
    flood = "import os\ndef main():\n    for _ in range(1600): os.write(1, b'x' * 65536)\n    return 'done'\n"
    reply = await call(runner, tmp_path, flood, "main")
    assert reply.facts == ["done"]
    assert len(reply.log) < LOG_LIMIT_BYTES + 100
    assert reply.log_dropped_bytes == 1600 * 65536 - LOG_LIMIT_BYTES


async def test_forks_end_with_the_call(runner: SupervisorRunner, tmp_path: Path) -> None:
    bomb = "import os, signal\ndef main():\n    for _ in range(20): os.fork() or signal.pause()\n    return 20\n"
    await call(runner, tmp_path, HELLO, "main")
    resident = family(runner)
    reply = await call(runner, tmp_path, bomb, "main")
    assert reply.facts == [20]
    assert family(runner) == resident


DAEMON = """
import os, signal
def main():
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(write, b"up")
            while True: signal.pause()
        os._exit(0)
    os.wait()
    return os.read(read, 2).decode()
def die():
    main()
    os._exit(0)
"""


@pytest.mark.parametrize(("ask", "kind"), [("main", "finished"), ("die", "exited")])
async def test_a_daemon_that_left_its_session_ends_with_the_call(
    runner: SupervisorRunner, tmp_path: Path, ask: str, kind: str
) -> None:
    await call(runner, tmp_path, HELLO, "main")
    resident = family(runner)
    reply = await call(runner, tmp_path, DAEMON, ask)
    assert reply.exit.kind == kind
    assert family(runner) == resident


async def test_a_candidate_that_exits_is_told_apart_from_one_that_finished(
    runner: SupervisorRunner, tmp_path: Path
) -> None:
    reply = await call(runner, tmp_path, "import os\ndef main(): os._exit(7)\n", "main")
    assert (reply.exit.kind, reply.exit.status, reply.facts) == ("exited", 7, [{"gone": True}])
    quiet = await call(runner, tmp_path, "import os\ndef main(): os._exit(0)\n", "main")
    assert (quiet.exit.kind, quiet.exit.status) == ("exited", 0)


async def test_a_segmentation_fault_is_reported_with_its_traceback(runner: SupervisorRunner, tmp_path: Path) -> None:
    reply = await call(runner, tmp_path, "import ctypes\ndef main(): ctypes.string_at(0)\n", "main")
    assert (reply.exit.kind, reply.exit.status) == ("signalled", signal.SIGSEGV)
    assert "candidate.py" in reply.log


async def test_a_candidate_that_fails_at_import_ends_by_itself(runner: SupervisorRunner, tmp_path: Path) -> None:
    reply = await call(runner, tmp_path, "raise RuntimeError('no')\n", "main")
    assert (reply.exit.kind, reply.exit.status) == ("exited", 1)
    assert "RuntimeError: no" in reply.log


async def test_a_hang_is_killed_at_its_cap_and_costs_the_next_call_nothing(
    runner: SupervisorRunner, tmp_path: Path
) -> None:
    await call(runner, tmp_path, HELLO, "main")
    reply = await call(runner, tmp_path, HANG, "main", cap_s=0.5)
    assert (reply.exit.kind, reply.fault, reply.facts) == ("cap_reached", "", [{"gone": True}])
    assert 0.5 <= reply.lease_s < 1.5
    after = await call(runner, tmp_path, HELLO, "main")
    assert after.facts == [42]
    assert after.observation["calls"] == 3


async def test_what_stops_is_still_until_it_is_continued(runner: SupervisorRunner, tmp_path: Path) -> None:
    reply = await call(runner, tmp_path, HELLO, "STOP", "CONT", "main")
    assert reply.facts == ["stopped", "continued", 42]
    frozen = await call(runner, tmp_path, HELLO, "STOP", "main", cap_s=0.5)
    assert frozen.exit.kind == "cap_reached"


GARBAGE = r"""
import struct
def cut(): conn.sendall(b"\x00\x00"); conn.close()
def long(): conn.sendall(struct.pack(">I", 1 << 30) + b"x" * 1000)
def nan(): conn.sendall(struct.pack(">I", 3) + b"NaN")
"""


@pytest.mark.parametrize("ask", ["cut", "long", "nan"])
async def test_garbage_on_the_socket_hurts_only_its_own_call(
    walled: SupervisorRunner, tmp_path: Path, ask: str
) -> None:
    reply = await call(walled, tmp_path, GARBAGE, ask)
    assert reply.fault == ""
    assert reply.facts is not None
    assert (await call(walled, tmp_path, HELLO, "main")).facts == [42]


async def test_a_cancelled_call_is_killed_and_answered(walled: SupervisorRunner, tmp_path: Path) -> None:
    request = make_request(tmp_path / "state", HANG, "main")
    begun = anyio.Event()
    replies: list[WorkerReply] = []

    async def run() -> None:
        replies.append(await walled.run(request, lambda _: begun.set()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await begun.wait()
        await walled.cancel(request.request_id)
    assert (replies[0].exit.kind, replies[0].fault) == ("cancelled", "")
    assert replies[0].lease_s > 0


async def test_a_call_cancelled_at_the_start_never_runs(walled: SupervisorRunner, tmp_path: Path) -> None:
    request = make_request(tmp_path / "state", HANG, "main", cap_s=20.0)
    replies: list[WorkerReply] = []

    async def run() -> None:
        replies.append(await walled.run(request, ignore))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        await walled.cancel(request.request_id)
    assert (replies[0].exit.kind, replies[0].fault, replies[0].lease_s) == ("cancelled", "", 0)


async def test_leased_calls_take_turns_and_a_waiting_one_can_be_cancelled(
    walled: SupervisorRunner, tmp_path: Path
) -> None:
    hanging = make_request(tmp_path / "state", HANG, "main", cap_s=1.0)
    waiting = [make_request(tmp_path / "state", HELLO, "main") for _ in range(2)]
    queued = [anyio.Event() for _ in range(3)]
    ended: list[WorkerReply] = []

    async def run(index: int) -> None:
        ended.append(await walled.run([hanging, *waiting][index], lambda _: queued[index].set()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, 0)
        await queued[0].wait()
        tasks.start_soon(run, 1)
        tasks.start_soon(run, 2)
        await queued[2].wait()
        await walled.cancel(waiting[0].request_id)
    by_id = {reply.request_id: reply for reply in ended}
    assert [reply.request_id for reply in ended] == [
        request.request_id for request in (waiting[0], hanging, waiting[1])
    ]
    assert by_id[waiting[0].request_id].exit.kind == "cancelled"
    assert by_id[waiting[0].request_id].lease_s == 0
    assert by_id[waiting[1].request_id].facts == [42]
    assert by_id[waiting[1].request_id].queue_s > 0.5
    assert by_id[waiting[1].request_id].wall_s < by_id[waiting[1].request_id].queue_s


async def test_a_lease_that_others_hold_is_waited_for_and_then_given_up(
    walled: SupervisorRunner, tmp_path: Path
) -> None:
    other = Lease(CPU.uid, tmp_path / "leases")
    assert other.try_take()
    heard: list[Progress] = []
    request = make_request(tmp_path / "state", HELLO, "main")
    refused = await walled.run(request, heard.append)
    assert "leased by others" in refused.fault
    assert (refused.exit.kind, refused.lease_s) == ("not_started", 0)
    assert heard[0].stage == "waiting for the device"
    reply = await walled.run(
        make_request(tmp_path / "state", HELLO, "main"),
        lambda progress: other.release() if progress.stage == "waiting for the device" else None,
    )
    assert reply.facts == [42]
    assert not Lease(CPU.uid, tmp_path / "leases").held


async def test_the_lease_note_lists_the_resident_referee(walled: SupervisorRunner, tmp_path: Path) -> None:
    await call(walled, tmp_path, HELLO, "main")
    note = Lease(CPU.uid, tmp_path / "leases").read()
    assert note.holder is None
    assert [resident.pid in family(walled) for resident in note.residents] == [True]


@pytest.mark.parametrize(
    ("how", "says"),
    [("dies", "lost"), ("fails", "no memory on our side"), ("hangs", "did not answer within")],
)
async def test_a_referee_that_fails_is_our_fault_and_replaced(
    walled: SupervisorRunner, tmp_path: Path, how: str, says: str
) -> None:
    reply = await call(walled, tmp_path, HELLO, "main", referee=how, cap_s=0.3)
    assert says in reply.fault
    assert reply.facts is None
    after = await call(walled, tmp_path, HELLO, "main")
    assert (after.facts, after.observation["calls"]) == ([42], 1)


async def test_what_a_dead_referee_had_started_ends_too(walled: SupervisorRunner, tmp_path: Path) -> None:
    await call(walled, tmp_path, HELLO, "main", referee="dies", crowd=True)
    assert family(walled) == set()


async def test_a_late_answer_is_discarded(walled: SupervisorRunner, tmp_path: Path) -> None:
    reply = await call(walled, tmp_path, HELLO, "main", referee="answers late")
    assert reply.facts == [42]


async def test_answers_and_requests_that_fit_no_frame_are_faults_in_words(
    walled: SupervisorRunner, tmp_path: Path
) -> None:
    request = make_request(tmp_path / "state", HELLO, "main")
    task = request.task.model_copy(update={"source": "#" * ANSWER_LIMIT_BYTES})
    large = await walled.run(request.model_copy(update={"task": task}), ignore)
    assert "at most" in large.fault
    unnamed = await walled.run(request.model_copy(update={"state_dir": "/" * FRAME_LIMIT_BYTES}), ignore)
    assert "frame" in unnamed.fault
    flood = "def main(): print('\\x01' * 40000)\n"
    mib = ANSWER_LIMIT_BYTES >> 20
    huge = await call(walled, tmp_path, flood, "main", mib=mib + 1)
    assert "could not be sent" in huge.fault
    many_pairs = await call(walled, tmp_path, HELLO, "main", mib=mib - 1)
    assert not many_pairs.fault
    assert many_pairs.facts is not None


def test_the_pairs_of_many_workloads_fit_a_frame() -> None:
    rng = random.Random(1)
    us = noisy(rng, 150, 0.1)
    one = timing(lambda: round(us(), 3), lambda: round(us(), 3), LOOKS[-1] + MOST_VOIDED, calls=MAX_CALLS)
    facts = {"facts": TimingFacts(timings=(one,) * 16).model_dump(mode="json")}
    assert FRAME_LIMIT_BYTES < len(frames.encode(facts, ANSWER_LIMIT_BYTES)) < ANSWER_LIMIT_BYTES / 4


async def test_a_procedure_without_a_candidate_forks_none(walled: SupervisorRunner, tmp_path: Path) -> None:
    reply = await call(walled, tmp_path, None, procedure="qualify")
    assert (reply.facts, reply.exit.kind, reply.log) == ([], "finished", "")
    late = await call(walled, tmp_path, None, procedure="qualify", referee="hangs", cap_s=0.3)
    assert late.exit.kind == "cap_reached"
    assert (await call(walled, tmp_path, None, procedure="qualify")).observation["calls"] == 1


async def test_a_compile_needs_no_lease_and_two_run_side_by_side(walled: SupervisorRunner, tmp_path: Path) -> None:
    other = Lease(CPU.uid, tmp_path / "leases")
    assert other.try_take()
    begun = [anyio.Event(), anyio.Event()]
    replies: list[WorkerReply] = []

    async def run(index: int) -> None:
        request = make_request(tmp_path / "state", HANG, "main", procedure="compile", cap_s=1.0)
        replies.append(await walled.run(request, lambda _: begun[index].set()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, 0)
        tasks.start_soon(run, 1)
        if (os.cpu_count() or 1) > 1:
            for event in begun:
                await event.wait()
            assert replies == []
    assert [reply.exit.kind for reply in replies] == ["cap_reached", "cap_reached"]
    assert [reply.lease_s for reply in replies] == [0, 0]
    other.release()


async def test_the_triton_cache_is_written_at_compile_and_only_read_afterwards(
    runner: SupervisorRunner, tmp_path: Path
) -> None:
    source = (
        "import os\ndef write(): open(os.environ['TRITON_CACHE_DIR'] + '/k', 'a').write('x'); return 'written'\n"
        "def read(): return open(start['cache'] + '/k').read()\n"
        "def other(): open(os.environ['TORCHINDUCTOR_CACHE_DIR'] + '/k', 'a').write('x'); return 'written'\n"
    )
    built = await call(runner, tmp_path, source, "write", procedure="compile")
    assert (built.facts, built.exit.kind) == (["written"], "finished")
    checked = await call(runner, tmp_path, source, "read", "write", "other")
    assert isinstance(checked.facts, list)
    assert checked.facts[0] == "x"
    assert "denied" in str(checked.facts[1]) or "Read-only" in str(checked.facts[1])
    assert checked.facts[2] == "written"


HEADLESS = """
import ctypes, os, threading
def main():
    pid = os.fork()
    if pid == 0:
        def live():
            with open("/proc/self/task/%d/stat" % os.getpid()) as first:
                while first.seek(0) or first.read().rpartition(")")[2].split()[0] != "Z":
                    pass
            os.write(2, b"headless\\n")
            threading.Event().wait(60)
        threading.Thread(target=live).start()
        ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
    return pid
"""


def test_a_process_whose_first_thread_ended_is_stopped_and_killed_like_any_other() -> None:
    code = HEADLESS.replace("os.write(2,", "os.write(1,") + "\nmain()\nthreading.Event().wait(60)\n"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"headless\n"
            (headless,) = processes.descendants(parent.pid)
            assert processes.state(headless) not in "TtZX"
            assert processes.stop_tree(parent.pid)
            assert processes.state(headless) == "T"
            descriptor = os.pidfd_open(headless)
            processes.kill_tree(parent.pid)
            assert select.select([descriptor], [], [], 5)[0]
            os.close(descriptor)
            assert processes.state(headless) in "ZX"
        finally:
            processes.kill_with_tree(parent.pid)

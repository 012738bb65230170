"""What a candidate behind its walls can reach: nothing that is not its own."""

import os
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from supervised import ignore, make_request, make_runner

from kernelgate.tasks.model import Workload
from kernelgate.tools.kit.runner import SupervisorRunner
from kernelgate.tools.kit.wire import WorkerRequest
from kernelgate.tools.worker import confine, landlock, seccomp

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["namespaces", "landlock only"])
async def runner(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SupervisorRunner]:
    made = make_runner(tmp_path, namespaces=request.param == "namespaces")
    yield made
    await made.close()


async def outcomes(runner: SupervisorRunner, folder: Path, attempts: dict[str, str]) -> dict[str, str]:
    """What came of each attempt: an exception's name and message, or what the code evaluated to."""
    source = "import os, socket, signal, ctypes\nfrom pathlib import Path\n" + "".join(
        f"def a{index}():\n    return repr({code})\n" for index, code in enumerate(attempts.values())
    )
    ask = [f"a{index}" for index in range(len(attempts))]
    reply = await runner.run(make_request(folder / "state", source, *ask), ignore)
    assert isinstance(reply.facts, list), reply
    return dict(zip(attempts, map(str, reply.facts), strict=True))


def failed(answer: str) -> bool:
    return answer.startswith(
        ("PermissionError", "FileNotFoundError", "OSError", "ProcessLookupError", "ConnectionRefused")
    )


async def test_secrets_outside_its_folders_cannot_be_read(runner: SupervisorRunner, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    ledger = tmp_path / "state" / "ledger.sqlite"
    ledger.parent.mkdir()
    ledger.write_text("s3cret")
    answers = await outcomes(
        runner,
        tmp_path,
        {
            "file": f"Path({str(secret)!r}).read_text()",
            "ledger": f"Path({str(ledger)!r}).read_text()",
            "other caches": f"os.listdir({str(tmp_path / 'state' / 'cache')!r})",
            "tasks": f"Path({str(ROOT / 'tasks' / 'model.py')!r}).read_text()",
            "checkout": f"Path({str(ROOT / 'pyproject.toml')!r}).read_text()",
            "home": f"os.listdir({str(Path.home())!r})",
            "shadow": "Path('/etc/shadow').read_text()",
        },
    )
    mounted_empty = {"other caches", "home"}
    for name, answer in answers.items():
        assert failed(answer) or (name in mounted_empty and "s3cret" not in answer and "ledger" not in answer), (
            name,
            answer,
        )
    assert not any("s3cret" in answer for answer in answers.values())


async def test_nothing_outside_its_folders_can_be_written(runner: SupervisorRunner, tmp_path: Path) -> None:
    answers = await outcomes(
        runner,
        tmp_path,
        {
            "tmp": "Path('/tmp/kernelgate-escape').write_text('x')",
            "shm": "Path('/dev/shm/../kernelgate-escape').write_text('x')",
            "packages": f"Path({os.__file__!r}).open('a')",
            "beside": f"Path({str(tmp_path / 'escape')!r}).write_text('x')",
            "up": "Path('../escape').write_text('x')",
            "link": "(os.symlink('/etc', 'etc'), Path('etc/kernelgate').write_text('x'))",
            "memory of the parent": "open(f'/proc/{os.getppid()}/mem', 'r+b')",
        },
    )
    assert all(failed(answer) for answer in answers.values()), answers
    assert not os.path.exists("/tmp/kernelgate-escape")  # noqa: ASYNC240  one look, at the end


async def test_its_scratch_and_temporary_folder_are_writable_and_bounded(
    runner: SupervisorRunner, tmp_path: Path
) -> None:
    answers = await outcomes(
        runner,
        tmp_path,
        {
            "own": "Path('mine').write_text('x')",
            "temp": "__import__('tempfile').TemporaryFile().write(b'xy')",
            "import": "__import__('this').__name__",
            "compiler": "os.path.exists('/usr/bin/env') and os.system('/usr/bin/env true')",
            "core": "__import__('resource').getrlimit(4)",
        },
    )
    assert list(answers.values()) == ["1", "2", "'this'", "0", "(0, 0)"]


async def test_neither_parent_nor_referee_nor_supervisor_can_be_signalled(
    runner: SupervisorRunner, tmp_path: Path
) -> None:
    await runner.hello()
    answers = await outcomes(
        runner,
        tmp_path,
        {
            "parent": "os.kill(os.getppid(), signal.SIGKILL)",
            "supervisor": f"os.kill({runner.supervisor_pid}, signal.SIGKILL)",
            "us": f"os.kill({os.getpid()}, signal.SIGKILL)",
            "all": "os.kill(-1, signal.SIGCONT)",
        },
    )
    assert all(failed(answer) for answer in list(answers.values())[:3]), answers
    again = await runner.run(make_request(tmp_path / "state", "def main(): return 1\n", "main"), ignore)
    assert again.observation["calls"] == 2


SEARCH = """import re, gc
def main():
    words, found, control = (b"hidden_" + b"workload", b"earlier_" + b"source", b"earlier_" + b"output"), [], 0
    for line in open("/proc/self/maps"):  # control_word_of_the_source
        span, rights = line.split()[:2]
        if rights[0] != "r" or line.rstrip().endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")) or "/" in line:
            continue
        start, end = (int(part, 16) for part in span.split("-"))
        with open("/proc/self/mem", "rb", 0) as memory:
            memory.seek(start)
            left = end - start
            while left > 0 and (chunk := memory.read(min(left, 1 << 20))):
                left -= len(chunk)
                control += (b"control_" + b"word_of") in chunk
                found += re.findall(b"(?:" + b"|".join(words) + rb")_[0-9]{4}", chunk)
    tasks = [type(thing).__name__ for thing in gc.get_objects() if "kernelgate.tasks" in type(thing).__module__]
    return [sorted({name.decode() for name in found}), tasks, control > 0]
"""
HIDDEN = Workload(name="hidden_workload_4711", held_out=True)


def with_a_hidden_workload(request: WorkerRequest) -> WorkerRequest:
    task = request.task.model_copy(update={"workloads": (*request.task.workloads, HIDDEN)})
    return request.model_copy(update={"task": task})


async def test_the_held_out_workloads_are_nowhere_in_its_memory(runner: SupervisorRunner, tmp_path: Path) -> None:
    for _ in range(2):  # the second candidate is forked after a whole call has gone through the supervisor
        request = make_request(tmp_path / "state", SEARCH, "main")
        reply = await runner.run(with_a_hidden_workload(request), ignore)
        assert reply.facts == [[[], [], True]], reply


@pytest.mark.parametrize("procedure", ["qualify", "precise_time", "compile"])
async def test_what_an_earlier_reply_told_is_nowhere_in_its_memory(
    runner: SupervisorRunner, tmp_path: Path, procedure: str
) -> None:
    source = None if procedure == "qualify" else "def main(): return 1\n"
    asked = () if source is None else ("main",)
    for misbehave in ("", "fails", "answers late"):
        request = make_request(
            tmp_path / "state", source, *asked, procedure=procedure, tells=True, referee=misbehave
        ).model_copy(update={"hidden": procedure == "precise_time"})
        told = await runner.run(with_a_hidden_workload(request), ignore)
        assert HIDDEN.name in f"{told.facts} {told.fault}"
    reply = await runner.run(make_request(tmp_path / "state", SEARCH, "main"), ignore)
    assert reply.facts == [[[], [], True]], reply


async def test_nothing_of_an_earlier_candidate_is_in_its_memory(runner: SupervisorRunner, tmp_path: Path) -> None:
    source = "# earlier_source_1234\ndef main():\n    print('earlier_output_1234')\n    return 'earlier_output_1235'\n"
    for procedure in ("check", "compile", "check"):
        earlier = await runner.run(make_request(tmp_path / "state", source, "main", procedure=procedure), ignore)
        assert (earlier.log, earlier.facts) == ("earlier_output_1234\n", ["earlier_output_1235"])
    reply = await runner.run(make_request(tmp_path / "state", SEARCH, "main"), ignore)
    assert reply.facts == [[[], [], True]], reply


async def test_limits_and_priorities_of_other_processes_cannot_be_changed(
    runner: SupervisorRunner, tmp_path: Path
) -> None:
    hello = await runner.hello()
    if seccomp.why_not():
        assert any(gap.startswith("seccomp:") for gap in hello.gaps)
        pytest.skip("this host has no system call filters")
    assert any(line.startswith("seccomp:") for line in hello.confinement)
    victims = {"parent": "os.getppid()", "supervisor": str(runner.supervisor_pid), "server": str(os.getpid())}
    attempts: dict[str, str] = {}
    for name, pid in victims.items():
        attempts |= {
            f"limit of {name}": f"__import__('resource').prlimit({pid}, 7, (9, 9))",
            f"processors of {name}": f"os.sched_setaffinity({pid}, {{0}})",
            f"scheduler of {name}": f"os.sched_setscheduler({pid}, os.SCHED_IDLE, os.sched_param(0))",
            f"priority of {name}": f"os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
        }
    attempts["priority of the user"] = "os.setpriority(os.PRIO_USER, 0, 19)"
    attempts["namespace"] = "(_ for _ in ()).throw(OSError(ctypes.CDLL(None).unshare(0x10000000)))"
    answers = await outcomes(runner, tmp_path, attempts)
    assert all(answer.startswith("PermissionError") for name, answer in answers.items() if name != "namespace"), answers
    assert answers["namespace"] == "OSError: -1"


async def test_it_may_set_its_own_limits_threads_and_programs(runner: SupervisorRunner, tmp_path: Path) -> None:
    answers = await outcomes(
        runner,
        tmp_path,
        {
            "limit": "__import__('resource').setrlimit(7, (512, 512))",
            "processors": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
            "priority": "os.setpriority(os.PRIO_PROCESS, 0, 5)",
            "thread": "(t := __import__('threading').Thread(target=print)).start() or t.join()",
            "program": "__import__('subprocess').run(['/bin/true']).returncode",
        },
    )
    assert list(answers.values()) == ["None", "None", "None", "None", "0"]


def test_the_filter_is_whole_for_each_known_architecture() -> None:
    for machine in ("x86_64", "aarch64"):
        code = seccomp.program(machine)
        steps = list(struct.iter_unpack("=HBBI", code))
        assert len(steps) < 4096
        for place, (_, if_true, if_false, _) in enumerate(steps):
            assert place + 1 + max(if_true, if_false) < len(steps) or steps[place][0] == 6
    with pytest.raises(KeyError):
        seccomp.program("riscv64")


async def test_the_network_is_out_of_reach(runner: SupervisorRunner, tmp_path: Path) -> None:
    hello = await runner.hello()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0kernelgate-test")
        abstract.listen()
        port = server.getsockname()[1]
        answers = await outcomes(
            runner,
            tmp_path,
            {
                "tcp": f"socket.create_connection(('127.0.0.1', {port}), 1)",
                "listen": "socket.create_server(('127.0.0.1', 0))",
                "abstract": "socket.socket(socket.AF_UNIX).connect('\\0kernelgate-test')",
                "udp": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))",
            },
        )
    tcp_only = any(gap.startswith("network: TCP only") for gap in hello.gaps)
    udp = answers.pop("udp")
    assert failed(udp) or tcp_only
    if any("namespaces" in line for line in hello.confinement):
        # A listener on a loopback of its own reaches nobody, and landlock refuses it anyway.
        assert failed(udp)
    assert all(failed(answer) for answer in answers.values()), answers


async def test_the_environment_of_the_server_does_not_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_API_KEY", "s3cret")
    runner = make_runner(tmp_path)
    answers = await outcomes(
        runner,
        tmp_path,
        {
            "own": "dict(os.environ)",
            "parent": "Path('/proc/1/environ').read_bytes()",
            "self": "Path('/proc/self/environ').read_bytes()",
            "descriptors": "sorted(os.listdir('/proc/self/fd'))",
        },
    )
    await runner.close()
    assert not any("s3cret" in answer for answer in answers.values()), answers
    descriptors = answers["descriptors"].count(",") + 1
    assert descriptors == 5  # 0, 1, 2, its socket, and the listing itself


async def test_no_capability_is_left(runner: SupervisorRunner, tmp_path: Path) -> None:
    status = (await outcomes(runner, tmp_path, {"status": "Path('/proc/self/status').read_text()"}))["status"]
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert f"{name}:\\t{0:016x}" in status
    if os.geteuid() == 0:
        assert f"CapBnd:\\t{0:016x}" in status
    assert "NoNewPrivs:\\t1" in status


async def test_processes_of_others_are_out_of_sight(runner: SupervisorRunner, tmp_path: Path) -> None:
    hello = await runner.hello()
    answers = await outcomes(
        runner,
        tmp_path,
        {
            "environ": f"Path('/proc/{os.getpid()}/environ').read_bytes()",
            "maps": f"Path('/proc/{os.getpid()}/maps').read_text()",
            "names": "[name for name in os.listdir('/proc') if name.isdigit()]",
        },
    )
    assert failed(answers["environ"])
    assert failed(answers["maps"])
    if any("namespaces" in line for line in hello.confinement):
        assert answers["names"] == "['1', '2']"


async def test_mode_and_times_of_files_are_out_of_reach_in_a_namespace(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)
    hello = await runner.hello()
    if any(gap.startswith("files:") for gap in hello.gaps):
        await runner.close()
        pytest.skip("this host has no mount namespaces for us")
    victim = tmp_path / "victim"
    victim.write_text("x")
    answers = await outcomes(
        runner,
        tmp_path,
        {
            "file": f"os.chmod({str(victim)!r}, 0)",
            "root": "os.chmod('/usr', 0o700)",
            "times": "os.utime('/usr')",
            "socket": "os.listdir('/run')",
        },
    )
    await runner.close()
    assert failed(answers["file"])
    assert failed(answers["root"])
    assert failed(answers["times"])
    assert failed(answers["socket"]) or answers["socket"] == "[]"


async def test_memory_on_the_cpu_device_is_bounded(runner: SupervisorRunner, tmp_path: Path) -> None:
    source = f"def main(): return len(bytearray({confine.CPU_ADDRESS_SPACE_BYTES}))\n"
    reply = await runner.run(make_request(tmp_path / "state", source, "main"), ignore)
    assert reply.facts == ["MemoryError: "]


async def test_hello_says_what_holds_and_what_does_not(runner: SupervisorRunner) -> None:
    hello = await runner.hello()
    assert hello.confinement
    if landlock.landlock_abi():
        assert any(line.startswith("landlock") for line in hello.confinement)
    weaker = not any(line.startswith("namespaces") for line in hello.confinement)
    assert weaker == any(gap.startswith("network: TCP only") for gap in hello.gaps)


def test_a_hidden_folder_is_left_out_of_what_contains_it(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    (packages / "ours" / "tasks").mkdir(parents=True)
    (packages / "theirs").mkdir()
    (packages / "module.py").touch()
    hidden = (packages / "ours").resolve()
    granted = {grant.path: grant.rights for grant in confine.readable_but(packages.resolve(), [hidden])}
    assert granted[str(packages.resolve())] == landlock.LIST
    assert granted[str(packages.resolve() / "theirs")] == landlock.READ
    assert not any(path.startswith(str(hidden)) for path in granted)

"""Is the GPU well? Behind a kill or a crash a probe tells, and nobody is charged for a device that is not."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from fakes import FakeRunner
from going_well import REFERENCE, Answer, built, correct, finished, steady, timed
from live_server import forward
from mcp import Client
from test_gate import our_fault
from test_gpus import nvml

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.server.app import build
from kernelgate.server.health import ASIDE_S, Finding, Health, finding_of, is_doubtful
from kernelgate.server.measure import KNOWN_GOOD
from kernelgate.server.services import Services, open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.facts import Fault
from kernelgate.tools.kit.pairing import WorkloadTiming
from kernelgate.tools.kit.runner import OnProgress
from kernelgate.tools.kit.wire import ChildExit, DeviceRef, WorkerReply, WorkerRequest

pytestmark = pytest.mark.anyio
GPU: Final = DeviceRef(kind="cuda", index=0, uid="GPU-00")
ILLEGAL: Final = "AcceleratorError: CUDA error: an illegal memory access was encountered"


def ended(request: WorkerRequest, kind: str, status: int = 0, **more: Any) -> WorkerReply:
    exit_ = ChildExit.model_validate({"kind": kind, "status": status})
    return WorkerReply(request_id=request.request_id, exit=exit_, **{"lease_s": 0.5, "wall_s": 0.6, **more})


def crash(request: WorkerRequest) -> WorkerReply:
    return ended(request, "signalled", 11)


def well(request: WorkerRequest) -> WorkerReply:
    return finished(request, {"well": True}, lease_s=0.2)


def ill(request: WorkerRequest) -> WorkerReply:
    return finished(request, {"well": False, "why": ILLEGAL}, lease_s=0.2)


def unleased(request: WorkerRequest) -> WorkerReply:
    return WorkerReply(request_id=request.request_id, exit=ChildExit(kind="not_started"), fault="No lease in 120 s.")


def qualified(request: WorkerRequest) -> WorkerReply:
    task = request.task
    names = [(w.name, d) for w in task.workloads_on("cuda", held_out=True) for d in task.distributions]
    references = [{"workload": w, "distribution": d, **REFERENCE} for w, d in names]
    trials = [{"mutant": "zeros", "workload": w, "distribution": d, "passes": False} for w, d in names]
    return finished(request, {"references": references, "trials": trials})


class Clock:
    """Stands still until a test moves it."""

    now_s = 1000.0

    def utc(self) -> str:
        return "2026-05-09T07:35:20.000000Z"

    def monotonic_s(self) -> float:
        return self.now_s


class Host:
    """A server with one GPU that does what the test says, and its client."""

    def __init__(self, folder: Path, check: Answer, *probes: Answer, known_good: Answer = correct) -> None:
        self.check, self.probes, self.known_good, self.clock = check, list(probes), known_good, Clock()
        self.others: dict[str, Answer] = {"qualify": qualified, "compile": built}
        self.asked: list[str] = []
        self.client: Any = None
        self.folder = folder

    def answer(self, request: WorkerRequest) -> WorkerReply:
        is_ours = any(KNOWN_GOOD in text for text in request.files.values())
        self.asked.append(request.procedure)
        if request.procedure == "probe":
            assert is_ours
            assert request.lease
            return self.probes.pop(0)(request)
        assert not (is_ours and request.procedure != "check_correctness")
        return self.others.get(request.procedure, self.known_good if is_ours else self.check)(request)

    async def call(self, word: str = "x", source: str = "", **more: Any) -> Any:
        source = source or forward(f"return {word}")
        arguments = {"run_id": "r1", "source": source, "up_to": "check_correctness", **more}
        return await self.client.call_tool("compile", arguments)

    def ledger(self) -> Ledger:
        return Ledger.open(self.folder / "ledger.db")

    def charged_s(self) -> float:
        with self.ledger() as ledger:
            assert ledger.open_holds("r1") == ()
            return ledger.purse("r1").settled.device_s

    def observations(self) -> list[Mapping[str, Any]]:
        with self.ledger() as ledger:
            return ledger.query("SELECT facts_json FROM observations WHERE facts_json LIKE '%probe%'")


@asynccontextmanager
async def hosted(host: Host, device: str = "cuda", runner: FakeRunner | None = None) -> AsyncIterator[Host]:
    runner = runner or FakeRunner(host.answer)

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Services]:
        settings = Settings(data_dir=host.folder, device=device)
        async with open_services(settings, runners={"GPU-00": runner, "cpu": runner}) as services:
            services.clock = host.clock
            yield services

    async with Client(build(opened)) as client:
        host.client = client
        started = await client.call_tool("start_run", {"task": "softmax"})
        assert not started.is_error, started.content
        yield host
    assert audit(host.folder / "ledger.db").ok
    assert host.probes == [], "a probe was not asked for"


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch)


BAD_ENDS: Final[dict[str, tuple[Answer, str]]] = {
    "crashed": (crash, "crashed"),
    "left": (lambda request: ended(request, "exited", 3), "crashed"),
    "killed": (lambda request: ended(request, "signalled", 9), "out_of_memory"),
    "raised": (
        lambda request: finished(
            request, {"planned": 1, "fault": {"kind": "raised", "stage": "forward", "error": ILLEGAL}}, lease_s=0.5
        ),
        "crashed",
    ),
}


@pytest.mark.parametrize("end", BAD_ENDS)
async def test_behind_a_bad_end_a_probe_that_finds_the_gpu_well_lets_the_verdict_stand(
    tmp_path: Path, end: str
) -> None:
    check, verdict = BAD_ENDS[end]
    async with hosted(Host(tmp_path, check, well)) as host:
        assert (await host.call()).structured_content["verdict"] == verdict
        assert host.asked == ["qualify", "compile", "check_correctness", "probe"]
        assert host.charged_s() == pytest.approx(0.5)
        assert '"well":true' in host.observations()[0]["facts_json"]
        assert '"paid_s":0.2' in host.observations()[0]["facts_json"]


@pytest.mark.parametrize("end", BAD_ENDS)
async def test_behind_a_bad_end_a_probe_that_fails_makes_it_a_fault_of_ours_and_the_second_try_counts(
    tmp_path: Path, end: str
) -> None:
    tries: list[int] = []

    def once(request: WorkerRequest) -> WorkerReply:
        tries.append(1)
        return BAD_ENDS[end][0](request) if len(tries) == 1 else correct(request)

    async with hosted(Host(tmp_path, once, ill)) as host:
        assert (await host.call()).structured_content["verdict"] == "correct"
        assert host.asked[2:] == ["check_correctness", "probe", "check_correctness"]
        assert host.charged_s() == pytest.approx(0.5)
        with host.ledger() as ledger:
            assert ledger.results("c1")[-1].house_s == pytest.approx(0.5)


async def test_a_kill_at_a_learned_hold_is_probed_before_the_hold_is_extended(tmp_path: Path) -> None:
    caps: list[float] = []

    def slow(request: WorkerRequest) -> WorkerReply:
        caps.append(request.cap_s)
        return ended(request, "cap_reached", lease_s=request.cap_s) if len(caps) < 3 else correct(request)

    async with hosted(Host(tmp_path, slow, ill, well)) as host:
        assert (await host.call()).structured_content["verdict"] == "correct"
        assert host.asked[2:] == ["check_correctness", "probe"] * 2 + ["check_correctness"]
        assert caps[0] == caps[1] < caps[2], "a device that is not well says nothing of the estimate"
        assert host.charged_s() == pytest.approx(caps[1] + 0.5)


async def test_a_fault_of_ours_is_probed_too_and_stays_one(tmp_path: Path) -> None:
    async with hosted(Host(tmp_path, our_fault, well, well)) as host:
        assert (await host.call()).structured_content["verdict"] == "crashed"
        assert host.asked[2:] == ["check_correctness", "probe"] * 2 + ["check_correctness"]
        assert host.charged_s() == pytest.approx(0.3)


@pytest.mark.parametrize("known_good", [correct, crash], ids=["passes", "fails"])
async def test_two_bad_ends_on_a_gpu_that_is_not_well_are_the_candidates_only_if_a_known_good_one_passes_the_work(
    tmp_path: Path, known_good: Answer
) -> None:
    async with hosted(Host(tmp_path, crash, ill, ill, known_good=known_good)) as host:
        result = await host.call()
        assert host.asked[2:] == ["check_correctness", "probe"] * 2 + ["check_correctness"]
        if known_good is correct:
            assert result.structured_content["verdict"] == "crashed"
            assert "known good candidate passes in its place" in result.structured_content["summary"]
        else:
            assert "The GPU was not well behind it" in result.content[0].text
            assert "Nothing was charged" in result.content[0].text
            assert host.charged_s() == 0


async def test_three_failed_probes_in_a_row_set_the_gpu_aside_and_further_calls_are_answered_at_once(
    tmp_path: Path,
) -> None:
    async with hosted(Host(tmp_path, crash, ill, ill, ill)) as host:
        first = await host.call()
        assert first.structured_content["verdict"] == "crashed", "a known good one passed: the second is its own"
        third = await host.call("x + 0")
        assert third.is_error
        text = third.content[0].text
        assert "the GPU cuda:0 (GPU-00) is set aside: since 2026-05-09 07:35:20 UTC 3 probes" in text
        assert "illegal memory access" in text
        assert "nvidia-smi" in text
        assert "another device" in text
        assert "Nothing was charged" in text
        before_s, asked = host.charged_s(), len(host.asked)
        refused = (await host.call("x + 0")).structured_content
        assert refused["refusal"]["kind"] == "not_here"
        assert "is set aside" in refused["refusal"]["why"]
        assert refused["refusal"]["missing"] == "a GPU that is well"
        built_still = (await host.call("x * 1")).structured_content
        assert [step["verdict"] for step in built_still["climbed"]] == ["built"]
        assert host.charged_s() == before_s
        assert [name for name in host.asked[asked:] if name != "compile"] == []


async def test_a_gpu_that_was_set_aside_is_probed_after_a_while_and_a_good_probe_lifts_it(tmp_path: Path) -> None:
    async with hosted(Host(tmp_path, crash, *[ill] * 4, well)) as host:
        for word in ("x", "x + 0"):
            await host.call(word)
        host.check = correct
        host.clock.now_s += ASIDE_S - 1
        assert (await host.call("x + 1")).structured_content["status"] == "refused"
        host.clock.now_s += 1
        assert "4 probes" in (await host.call("x + 1")).structured_content["refusal"]["why"]
        assert (await host.call("x + 1")).structured_content["status"] == "refused", "not probed again at once"
        host.clock.now_s += ASIDE_S
        assert (await host.call("x + 1")).structured_content["verdict"] == "correct"
        assert host.asked[-2:] == ["probe", "check_correctness"]


async def test_a_run_of_a_task_that_is_not_known_yet_does_not_start_on_a_gpu_that_is_set_aside(tmp_path: Path) -> None:
    async with hosted(Host(tmp_path, crash, ill, ill, ill)) as host:
        for word in ("x", "x + 0"):
            await host.call(word)
        refused = await host.client.call_tool("start_run", {"task": "rmsnorm"})
        assert refused.is_error
        assert "cannot be tried now: the GPU cuda:0 (GPU-00) is set aside" in refused.content[0].text


async def test_a_probe_that_got_no_lease_says_nothing_of_the_gpu(tmp_path: Path) -> None:
    async with hosted(Host(tmp_path, crash, *[unleased] * 3)) as host:
        for word in ("x", "x + 0", "x + 1"):
            assert (await host.call(word)).structured_content["verdict"] == "crashed"
        host.check = correct
        assert (await host.call("x + 2")).structured_content["verdict"] == "correct"


async def test_what_a_probe_says_names_no_hidden_workload(tmp_path: Path) -> None:
    def telling(request: WorkerRequest) -> WorkerReply:
        unseen = next(w.name for w in request.task.workloads_on("cuda", held_out=True) if w.held_out)
        return ended(request, "not_started", fault=f"workload {unseen}, forward raised ValueError: shape_77")

    async with hosted(Host(tmp_path, crash, *[telling] * 3)) as host:
        await host.call()
        aside = (await host.call("x + 0")).content[0].text
        assert "set aside" in aside
        assert "shape_77" not in aside  # a reference id may hold any two digits
        assert not any("shape_77" in row["facts_json"] for row in host.observations())


async def test_a_server_that_leaves_while_it_probes_charges_what_the_candidate_used(tmp_path: Path) -> None:
    class ProbeHangs(FakeRunner):
        async def run(self, request: WorkerRequest, on_progress: OnProgress) -> WorkerReply:
            hangs = request.procedure == "probe"
            return await (FakeRunner() if hangs else super()).run(request, on_progress)

    host = Host(tmp_path, crash)
    async with hosted(host, runner=ProbeHangs(host.answer)):
        assert (await host.call(wait_s=0.2)).structured_content["status"] == "running"
    with host.ledger() as ledger:
        (charge,) = ledger.query("SELECT outcome, gpu_s, work_s FROM charges WHERE rung = 'check'")
        assert charge == {"outcome": "cancelled", "gpu_s": 0.5, "work_s": 0.6}


@pytest.mark.parametrize(("probe", "verdict"), [(well, "build_failed"), (ill, "needs_device")], ids=["well", "ill"])
async def test_a_build_on_a_gpu_that_is_not_well_says_nothing_of_the_candidate(
    tmp_path: Path, probe: Answer, verdict: str
) -> None:
    trace = {"on": "fake_cuda", "workloads": [], "complete": False, "needs_values": True}
    host = Host(tmp_path, correct, probe)
    host.others["compile"] = lambda request: finished(request, {"language": "triton", "trace": trace})
    host.others["device_build"] = crash
    async with hosted(host):
        source = "import triton\n\n\n@triton.jit\ndef kernel():\n    pass\n\n\n" + forward("return x")
        assert (await host.call(source=source)).structured_content["verdict"] == verdict
        assert host.asked == ["qualify", "compile", "device_build", "probe"]


async def test_a_build_has_its_own_second_try_while_the_gpu_is_set_aside(tmp_path: Path) -> None:
    tries: list[int] = []

    def once(request: WorkerRequest) -> WorkerReply:
        tries.append(1)
        return our_fault(request) if len(tries) == 1 else built(request)

    async with hosted(Host(tmp_path, crash, ill, ill, ill)) as host:
        for word in ("x", "x + 0"):
            await host.call(word)
        host.others["compile"] = once
        assert (await host.call("x + 1", up_to="compile")).structured_content["verdict"] == "built"


async def test_on_the_cpu_nothing_is_probed(tmp_path: Path) -> None:
    async with hosted(Host(tmp_path, crash), device="cpu") as host:
        assert (await host.call()).structured_content["verdict"] == "crashed"
        assert "probe" not in host.asked


def of(reply: Answer) -> WorkerReply:
    """What a worker says to some request."""
    request: Any = type("Request", (), {"request_id": 1})()
    return reply(request)


def test_a_timing_that_raised_an_accelerator_error_gives_cause_to_doubt_the_gpu_and_other_ends_do_not() -> None:
    def failed(error: str, kind: str = "raised") -> WorkerReply:
        fault = Fault.model_validate({"kind": kind, "stage": "block", "error": error})
        return of(lambda request: timed(request, WorkloadTiming(workload=steady("64x256").workload, fault=fault)))

    for error in (ILLEGAL, "RuntimeError: Triton Error [CUDA]: misaligned address", "RuntimeError: CUDA error: x"):
        assert is_doubtful(GPU, failed(error))
    for reply in (failed("ValueError: not twice"), failed(ILLEGAL, "out_of_memory"), of(correct), of(unleased)):
        assert not is_doubtful(GPU, reply)
    assert not is_doubtful(GPU, of(lambda request: ended(request, "cancelled")))
    assert not is_doubtful(DeviceRef(kind="cpu"), failed(ILLEGAL))


def test_a_referee_that_cannot_start_cuda_is_a_failed_probe_and_one_that_got_no_lease_is_none() -> None:
    broken = of(lambda request: unleased(request).model_copy(update={"lease_s": 0.4, "fault": "No CUDA.\nTraceback"}))
    assert finding_of(broken) == Finding(well=False, why="No CUDA", paid_s=0.4)
    assert is_doubtful(GPU, broken)
    assert finding_of(of(unleased)).well is None
    assert finding_of(of(crash)) == Finding(well=False, why="its process ended (signalled 11)", paid_s=0.5)
    assert finding_of(of(well)) == Finding(well=True, paid_s=0.2)


def test_only_failures_in_a_row_count() -> None:
    def known(*found: bool | None) -> Health:
        health = Health()
        for well in found:
            health = health.after(Finding(well=well, why="bad"), 5.0, "2026-05-09T07:35:20.000000Z")
        return health

    assert known(False, False, False).is_aside
    assert known(False, None, False, None, False).is_aside
    assert not known(False, False, True, False).is_aside
    assert known(False, False, False, True) == Health(probed_s=5.0)
    assert known(False, False).trouble(GPU) == ""

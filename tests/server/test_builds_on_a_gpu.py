"""What a build on a GPU host leads to: a call on the device where only that can tell, the book where the cache is."""

from pathlib import Path
from typing import Any, Final

import pytest
from fakes import FakeRunner
from going_well import correct, finished
from live_server import forward
from test_gpus import nvml
from test_health import GPU, Host, hosted

from kernelgate.budget.model import Rung
from kernelgate.server.measure import judged
from kernelgate.server.passages import limit_s_of
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Candidate
from kernelgate.tools.check_correctness import TOOL as CHECK
from kernelgate.tools.compile import TOOL as COMPILE
from kernelgate.tools.kit.caches import cache_folder
from kernelgate.tools.kit.wire import WorkerReply, WorkerRequest

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch)


TRITON: Final = "import triton\n\n\n@triton.jit\ndef kernel():\n    pass\n\n\n" + forward("return x")


async def test_a_build_is_answered_from_the_book_where_the_later_rungs_find_what_it_left(tmp_path: Path) -> None:
    asked = {"source": TRITON, "up_to": "compile"}
    async with hosted(Host(tmp_path, correct)) as host:
        await host.call(**asked)
        again = (await host.call(**asked)).structured_content
        assert (again["verdict"], again["replayed"]) == ("built", False), "another GPU's cache is not this one's"
        cache_folder(tmp_path / "work", GPU, Candidate(files={"candidate.py": TRITON}).digest).mkdir(parents=True)
        assert (await host.call(**asked)).structured_content["replayed"]
        assert host.asked == ["qualify", "compile", "compile"]


AT_IMPORT: Final = {"fault": {"kind": "raised", "stage": "load", "error": "CUDA error"}, "wants_device": True}


@pytest.mark.parametrize(
    ("facts", "asked"),
    [
        ({"language": "torch", **AT_IMPORT}, ["device_build"]),
        ({"language": "cuda", **AT_IMPORT}, ["device_build"]),
        ({"language": "cuda", "missing": ["nvcc"]}, []),
    ],
    ids=["torch at import", "CUDA sources at import", "no compiler"],
)
async def test_what_wants_a_gpu_is_built_on_it_and_what_wants_a_compiler_is_not(
    tmp_path: Path, facts: dict[str, Any], asked: list[str]
) -> None:
    host = Host(tmp_path, correct)
    host.others["compile"] = lambda request: finished(request, facts)
    host.others["device_build"] = lambda request: finished(request, {"workloads": ["w"], "prepare_s": 1.0})
    async with hosted(host):
        reply = (await host.call(up_to="compile")).structured_content
        assert host.asked == ["qualify", "compile", *asked]
        assert reply["verdict"] == ("built" if asked else "needs_device")
        assert asked or reply["report"]["missing"] == ["nvcc"]


@pytest.mark.parametrize(
    ("tool", "language", "limit_s"), [(COMPILE, "cuda", 300), (COMPILE, "triton", 60), (CHECK, "cuda", 60)]
)
def test_only_the_build_of_cuda_sources_has_a_limit_of_its_own(tool: Any, language: str, limit_s: float) -> None:
    assert limit_s_of(tool, language) == limit_s


async def test_an_own_kernel_in_cuda_is_given_the_time_to_build_that_a_run_would_give(tmp_path: Path) -> None:
    caps: list[float] = []

    def compiled(request: WorkerRequest) -> WorkerReply:
        caps.append(request.cap_s)
        return finished(request, {"language": "cuda", "missing": ["nvcc"]})

    settings = Settings(data_dir=tmp_path, device="cuda")
    async with open_services(settings, runners={GPU.uid: FakeRunner(compiled)}) as services:
        inline = {"candidate.py": "from torch.utils.cpp_extension import load_inline\n"}
        report = await judged(services, Catalogue().task("softmax"), GPU, inline, Rung.compile)
    assert (caps, report.verdict) == ([300.0], "needs_device")

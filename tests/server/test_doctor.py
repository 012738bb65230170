"""What `doctor` concludes of a host, for hosts of every kind; and that the real one can be read."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from kernelgate.server.counters_check import CounterAccess
from kernelgate.server.doctor import Check, Report, examine, judge, render
from kernelgate.server.host import NAMESPACES, PACKAGES, Folder, Gpu, GpuProcess, Host, read_folder, read_host
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tools.kit.wire import Hello

H200 = Gpu(uuid="GPU-1", name="NVIDIA H200", target="sm_90", driver="580.159.03")
LOST = Gpu(problem="NVIDIA's driver gets no answer from it (GPU is lost)")
GPU_HOST = Host(
    python="3.12.3",
    executable="/opt/env/bin/python",
    system="Linux",
    kernel="6.18.1",
    machine="x86_64",
    cpu_name="Some CPU",
    cpu_cores=16,
    memory_bytes=128 << 30,
    memory_free_bytes=100 << 30,
    is_root=True,
    packages={**dict.fromkeys(PACKAGES, "9.9"), "torch": "2.11.0+cu130", "triton": "3.6.0"},
    torch_cuda="13.0",
    gpus=(H200,),
    driver_loaded=True,
    programs={name: f"/usr/bin/{name}" for name in ("cc", "nvcc", "ninja", "cuobjdump", "nvdisasm", "ncu")},
    landlock_abi=7,
    namespaces=dict.fromkeys(NAMESPACES, ""),
    has_memfd=True,
    has_descriptor_passing=True,
    data=Folder(path=Path("/data"), file_system="ext4", free_bytes=50 << 30),
    counters=CounterAccess(library="13.4.0", administrators_only=False, folder=Path("/data/counters")),
    leases=Folder(path=Path("/leases"), file_system="ext4", free_bytes=50 << 30),
)
LAPTOP = GPU_HOST.model_copy(
    update={
        "gpus": (),
        "driver_loaded": False,
        "torch_cuda": "",
        "is_root": False,
        "packages": {**GPU_HOST.packages, "torch": "2.13.0+cpu"},
    }
)


def check(name: str, host: Host, **changes: Any) -> Check:
    """One check of a host that differs in these points."""
    (found,) = [each for each in judge(host.model_copy(update=changes)).checks if each.name == name]
    return found


def test_a_complete_gpu_host_has_nothing_to_mend() -> None:
    report = judge(GPU_HOST)
    assert {each.state for each in report.checks} == {"ok"}
    assert report.usable
    assert report.cannot == ()
    assert "check, time and profile candidates on the GPU" in report.can


@pytest.mark.parametrize("problem", ["it is in MIG mode", "NVIDIA's driver gets no answer from it (GPU is lost)"])
def test_a_gpu_with_a_problem_can_do_nothing_and_the_cpu_still_can(problem: str) -> None:
    report = judge(GPU_HOST.model_copy(update={"gpus": (H200.model_copy(update={"problem": problem}),)}))
    assert "check, time and profile candidates on the GPU" in report.cannot
    assert "check and time PyTorch candidates on the CPU" in report.can
    one_of_two = judge(GPU_HOST.model_copy(update={"gpus": (LOST, H200)}))
    assert "check, time and profile candidates on the GPU" in one_of_two.can


def test_gpus_that_the_environment_leaves_out_are_told_and_are_no_trouble() -> None:
    found = check("gpu", GPU_HOST, gpus_hidden="CUDA_VISIBLE_DEVICES=1 leaves 1 of 2 GPU(s)")
    assert (found.state, found.found.endswith("CUDA_VISIBLE_DEVICES=1 leaves 1 of 2 GPU(s)")) == ("ok", True)


def test_a_laptop_is_usable_and_told_what_a_gpu_would_add() -> None:
    report = judge(LAPTOP)
    assert report.usable
    assert report.cannot == ("check, time and profile candidates on the GPU",)
    assert [each.name for each in report.checks if each.state != "ok"] == ["gpu"]
    assert "Triton ones compiled and checked, not timed" in check("gpu", LAPTOP).advice


def test_a_check_that_finds_trouble_cannot_keep_quiet_about_the_remedy() -> None:
    with pytest.raises(ValidationError, match="not what to do about it"):
        Check(name="x", state="warn", found="bad")


@pytest.mark.parametrize(
    ("name", "changes", "state", "words"),
    [
        ("python", {"python": "3.10.12"}, "missing", "Python 3.11 or newer"),
        ("torch", {"packages": dict.fromkeys(PACKAGES, "absent")}, "missing", "2.7 GB"),
        ("torch", {"packages": {**GPU_HOST.packages, "torch": "2.10.1"}}, "warn", "2.11 and newer"),
        ("torch", {"torch_cuda": ""}, "warn", "There is a GPU: install the CUDA build"),
        ("torch", {"gpus": (H200.model_copy(update={"driver": "550.54"}),)}, "warn", "needs driver 580 or newer"),
        ("triton", {"packages": {**GPU_HOST.packages, "triton": "absent"}}, "warn", "pip install 'triton>=3.6'"),
        ("triton", {"packages": {**GPU_HOST.packages, "triton": "3.5.1"}}, "warn", "3.6 and newer"),
        ("packages", {"packages": {**GPU_HOST.packages, "mcp": "absent"}}, "missing", "brings mcp"),
        ("system", {"system": "Darwin"}, "missing", "Linux only"),
        ("cpu", {"cpu_cores": 1}, "warn", "at least two"),
        ("memory", {"memory_free_bytes": 2 << 30}, "warn", "4.3 GB"),
        ("gpu", {"gpus": (LOST,)}, "warn", "cuda:0 cannot be used: NVIDIA's driver gets no answer"),
        ("gpu", {"gpus": (LOST,)}, "warn", "The cpu device works meanwhile"),
        ("gpu", {"gpus": (H200, LOST)}, "warn", "cuda:1 cannot be used"),
        ("gpu", {"gpus": (H200, LOST)}, "warn", "The others can"),
        ("gpu", {"gpus": (), "gpus_hidden": "CUDA_VISIBLE_DEVICES= leaves none of 2 GPU(s)"}, "warn", "Unset it"),
        ("gpu", {"gpus": ()}, "warn", "--gpus all"),
        ("programs", {"programs": {"cc": "/usr/bin/cc"}}, "warn", "install the CUDA toolkit"),
        ("landlock", {"landlock_abi": 0}, "missing", "lsm="),
        ("landlock", {"landlock_abi": 3}, "warn", "open TCP connections and signal"),
        ("landlock", {"landlock_abi": 5}, "warn", "Candidates may still signal"),
        ("namespaces", {"namespaces": {"user": "", "mount": "Operation not permitted"}}, "warn", "CAP_SYS_ADMIN"),
        ("memory lending", {"has_memfd": False}, "missing", "memfd_create"),
        ("data folder", {"data": Folder(path=Path("/d"), problem="/d is a file")}, "missing", "KERNELGATE_HOME"),
        (
            "data folder",
            {"data": Folder(path=Path("/d"), file_system="nfs4", free_bytes=9 << 30)},
            "warn",
            "local disk",
        ),
        ("data folder", {"data": Folder(path=Path("/d"), file_system="tmpfs", free_bytes=9 << 30)}, "warn", "restart"),
        ("data folder", {"data": Folder(path=Path("/d"), file_system="ext4", free_bytes=1)}, "warn", "Free some space"),
        ("lease folder", {"leases": Folder(path=Path("/l"), problem="/l is a file")}, "missing", "mode 1777"),
    ],
)
def test_each_lack_is_found_with_its_remedy(name: str, changes: dict[str, Any], state: str, words: str) -> None:
    found = check(name, GPU_HOST, **changes)
    assert found.state == state
    assert words in found.advice


def test_processes_on_the_gpus_are_listed_with_what_they_take_and_without_a_gpu_nothing_is_said() -> None:
    busy = (GpuProcess(index=0, pid=123, memory_mib=512), GpuProcess(index=1, pid=124, memory_mib=0))
    found = check("gpu processes", GPU_HOST, gpu_processes=busy)
    assert (found.state, found.found) == ("warn", "cuda:0: pid 123, 512 MiB; cuda:1: pid 124")
    assert "stop them, or use another GPU" in found.advice
    assert check("gpu processes", GPU_HOST).state == "ok"
    assert [each.name for each in judge(LAPTOP).checks if each.name == "gpu processes"] == []


def test_only_what_is_essential_makes_a_host_unusable() -> None:
    assert judge(GPU_HOST.model_copy(update={"landlock_abi": 0, "gpus": ()})).usable
    assert not judge(GPU_HOST.model_copy(update={"has_memfd": False})).usable


def test_namespaces_do_not_matter_without_root() -> None:
    refused = dict.fromkeys(NAMESPACES, "Operation not permitted")
    assert check("namespaces", LAPTOP, namespaces=refused).state == "ok"
    assert "no network and no sight" in check("user", LAPTOP).advice


def test_what_the_supervisor_said_of_confinement_is_passed_on() -> None:
    hello = Hello(pid=1, torch="2.13.0", triton="3.9.0", confinement=("Files: only its own.",), gaps=("UDP is open.",))
    (found,) = [each for each in judge(LAPTOP, hello=hello).checks if each.name == "confinement"]
    assert (found.state, found.found, found.advice) == ("warn", "Files: only its own.", "UDP is open.")
    held = hello.model_copy(update={"gaps": ()})
    assert [each.state for each in judge(LAPTOP, hello=held).checks if each.name == "confinement"] == ["ok"]


def test_tasks_that_cannot_be_used_are_counted_with_the_first_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def get_inputs(:\n", encoding="utf-8")
    report = judge(LAPTOP, Catalogue([tmp_path]))
    (found,) = [each for each in report.checks if each.name == "tasks"]
    assert found.state == "warn"
    assert "1 cannot" in found.found
    assert "broken" in found.advice


def test_the_report_as_json_can_be_read_back() -> None:
    report = judge(LAPTOP)
    text = json.dumps(report.model_dump(mode="json"))
    assert Report.model_validate_json(text) == report


@pytest.mark.parametrize("host", [GPU_HOST, LAPTOP], ids=["gpu", "laptop"])
def test_people_read_every_check_and_every_remedy_uncut(host: Host) -> None:
    long_path = Path("/" + "very_long_name/" * 20)
    host = host.model_copy(update={"data": Folder(path=long_path, problem="[bold]not writable[/bold]")})
    out = io.StringIO()
    report = judge(host)
    render(report, Console(file=out, width=80))
    squeezed = "".join(out.getvalue().split())
    for each in report.checks:
        assert "".join(each.found.split()) in squeezed
        assert "".join(each.advice.split()) in squeezed


def test_this_host_is_read_without_importing_torch(tmp_path: Path) -> None:
    program = (
        "import json, sys, pathlib; from kernelgate.server.doctor import examine\n"
        'report = examine(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1]) / "ledger.db")\n'
        "print(json.dumps([report.model_dump(mode='json')['host'], 'torch' in sys.modules]))"
    )
    command = [sys.executable, "-P", "-c", program, str(tmp_path / "new")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    host, has_torch = json.loads(done.stdout)
    assert has_torch is False
    assert host["packages"]["mcp"].startswith("2.")
    assert host["cpu_cores"] >= 1
    assert host["memory_bytes"] >= host["memory_free_bytes"] > 0
    assert not (tmp_path / "new").exists(), "looking must not make the folder"


def test_the_cuda_version_of_torch_is_read_from_its_text(tmp_path: Path) -> None:
    host = read_host(tmp_path)
    assert host.torch_cuda is not None
    assert ("+cpu" in host.packages["torch"]) <= (host.torch_cuda == "")
    assert examine(tmp_path, tmp_path / "ledger.db").host.torch_cuda == host.torch_cuda


def test_a_folder_that_is_not_there_yet_is_judged_by_where_it_would_be(tmp_path: Path) -> None:
    folder = read_folder(tmp_path / "a/b/c")
    assert folder.problem == ""
    assert folder.free_bytes > 0
    assert folder.file_system


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert read_folder(tmp_path / "a/b").problem == f"{tmp_path / 'a'} is a file"


def test_a_folder_that_may_not_be_written_is_named() -> None:
    assert "may not be written" in read_folder(Path("/proc/sys/nothing" if os.geteuid() == 0 else "/")).problem

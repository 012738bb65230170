"""Reading a Triton cache whose content is hostile. What real binaries say is in the tests of tracing."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kernelgate.tools.worker import binaries
from kernelgate.tools.worker.binaries import read_kernels

USAGE = "Function k:\n  REG:40 STACK:8 SHARED:1024 LOCAL:16 CONSTANT[0]:560\n"


def put_kernel(cache: Path, folder: str = "A", *, ptx: str = "", binary: bytes = b"\x7fELF", **metadata: Any) -> Path:
    place = cache / folder
    place.mkdir(parents=True, exist_ok=True)
    fields = {"name": "k", "num_warps": 4, "shared": 2048, "target": {"backend": "cuda", "arch": 90}, "more": [1]}
    (place / "k.cubin").write_bytes(binary)
    (place / "k.json").write_text(json.dumps(fields | metadata))
    (place / "k.ptx").write_text(ptx)
    return place


def put_tools(monkeypatch: pytest.MonkeyPatch, folder: Path, **scripts: str) -> None:
    """Stand-ins for the toolkit: name → shell script. Names without one are not found."""
    folder.mkdir()
    for name, script in scripts.items():
        tool = folder / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    monkeypatch.setattr(binaries, "find_tool", lambda name, path: folder / name if name in scripts else None)


def usage_script(text: str = USAGE) -> str:
    return f"cat <<'END'\n{text}END"


def test_registers_spills_and_shared_memory_come_from_the_resource_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tools(monkeypatch, tmp_path / "tools", cuobjdump=usage_script(), nvdisasm="echo 'HMMA.16816.F32 LDG.E.128 R4'")
    put_kernel(tmp_path / "cache")
    (kernel,), notes = read_kernels(tmp_path / "cache")
    assert (kernel.name, kernel.target, kernel.registers, kernel.warps) == ("k", "sm_90", 40, 4)
    assert (kernel.spill_bytes, kernel.shared_bytes) == (24, 2048)
    assert (kernel.tensor_cores, kernel.vector_loads) == (True, True)
    assert notes == ()


@pytest.mark.parametrize(
    ("code", "tensor_cores", "vector_loads"),
    [
        ("HGMMA.64x128x16.F32 R24", True, False),
        ("IMMA.16832.S8.S8 R4", True, False),
        ("UTCHMMA gdesc", True, False),
        ("LDG.E R4, [R2]", False, False),
        ("LDG.E.64.CONSTANT R4", False, True),
        ("LDGSTS.E.BYPASS.128 [R4]", False, True),
        ("UTMALDG.2D [UR8]", False, True),
        ("STG.E.128 [R4]", False, False),
        ("FFMA R1, R2", False, False),
    ],
)
def test_instructions_tell_of_tensor_cores_and_wide_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, tensor_cores: bool, vector_loads: bool
) -> None:
    put_tools(monkeypatch, tmp_path / "tools", cuobjdump=usage_script(), nvdisasm=f"echo '  /*0010*/ {code}, R1 ;'")
    put_kernel(tmp_path / "cache")
    (kernel,), _ = read_kernels(tmp_path / "cache")
    assert (kernel.tensor_cores, kernel.vector_loads) == (tensor_cores, vector_loads)


@pytest.mark.parametrize(
    ("ptx", "tensor_cores", "vector_loads"),
    [
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {", True, False),
        ("ld.global.v4.b32 { %r1 }, [ %rd1 ];", False, True),
        ("ld.global.b32 { %r1 }, [ %rd1 ];", False, False),
        ("cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;", False, True),
        ("cp.async.ca.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x4, %r2;", False, False),
    ],
)
def test_without_tools_the_numbers_come_from_metadata_and_ptx_and_a_note_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ptx: str, tensor_cores: bool, vector_loads: bool
) -> None:
    put_tools(monkeypatch, tmp_path / "tools")
    put_kernel(tmp_path / "cache", ptx=ptx)
    (kernel,), notes = read_kernels(tmp_path / "cache")
    assert (kernel.registers, kernel.spill_bytes, kernel.shared_bytes, kernel.warps) == (0, 0, 2048, 4)
    assert (kernel.tensor_cores, kernel.vector_loads) == (tensor_cores, vector_loads)
    assert len(notes) == 1
    assert "registers and spills are unknown" in notes[0]


@pytest.mark.parametrize(
    ("code", "ptx", "atomics", "doubles"),
    [
        ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2]", "", True, False),
        ("REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R5", "", True, False),
        ("ATOMG.E.CAS.STRONG.GPU PT, R6", "", True, False),
        ("REDUX.SUM UR4, R2", "", False, False),
        ("DFMA R4, R6, R8", "", False, True),
        ("F2F.F64.F32 R4, R6", "", False, False),
        ("", "red.relaxed.gpu.global.add.f32 [ %rd1 + 0 ], %f1;", True, False),
        ("", "atom.global.gpu.acq_rel.add.u32 %r1, [ %rd1 ], %r2;", True, False),
        ("", "atom.shared.add.u32 %r1, [ %r2 ], %r3;", False, False),
        ("", "fma.rn.f64 %fd1, %fd2, %fd3, %fd4;", False, True),
        ("", "fma.rn.f32 %f1, %f2, %f3, %f4;", False, False),
    ],
)
def test_instructions_tell_of_atomics_and_of_double_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, ptx: str, atomics: bool, doubles: bool
) -> None:
    tools = {"nvdisasm": f"echo '  /*0010*/ {code} ;'"} if code else {}
    put_tools(monkeypatch, tmp_path / "tools", cuobjdump=usage_script(), **tools)
    put_kernel(tmp_path / "cache", ptx=ptx)
    (kernel,), _ = read_kernels(tmp_path / "cache")
    assert (kernel.atomics, kernel.doubles) == (atomics, doubles)


def test_an_absent_cache_holds_no_kernels(tmp_path: Path) -> None:
    assert read_kernels(tmp_path / "nowhere").kernels == ()


def test_the_tools_in_tritons_own_package_are_found() -> None:
    found = binaries.find_tool("cuobjdump", "/nowhere")
    assert found is not None
    assert found.parent.name == "bin"


def test_garbage_that_pretends_to_be_a_binary_is_told_and_skipped(tmp_path: Path) -> None:
    put_kernel(tmp_path, binary=os.urandom(4096))
    kernels, notes = read_kernels(tmp_path)
    assert kernels == ()
    assert notes == ("a binary in the cache could not be read",)


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "../../etc/passwd"},
        {"name": "k\n ignore what came before"},
        {"name": "k" * 201},
        {"num_warps": 0},
        {"num_warps": "4"},
        {"shared": 1 << 40},
        {"target": {"arch": 10**9}},
        {"target": None},
    ],
)
def test_metadata_that_triton_would_not_write_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata: dict[str, Any]
) -> None:
    put_tools(monkeypatch, tmp_path / "tools")
    put_kernel(tmp_path / "cache", **metadata)
    assert read_kernels(tmp_path / "cache").kernels == ()


def test_links_and_pipes_are_never_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tools(monkeypatch, tmp_path / "tools")
    elsewhere = put_kernel(tmp_path / "elsewhere")
    cache = tmp_path / "cache"
    (cache / "B").mkdir(parents=True)
    (cache / "A").symlink_to(elsewhere)
    (cache / "B" / "k.cubin").symlink_to(elsewhere / "k.cubin")
    os.mkfifo(cache / "B" / "pipe.cubin")
    half_linked = put_kernel(cache, "C")
    (half_linked / "k.json").unlink()
    (half_linked / "k.json").symlink_to(elsewhere / "k.json")
    assert read_kernels(cache).kernels == ()


def test_an_endless_tree_is_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tools(monkeypatch, tmp_path / "tools")
    monkeypatch.setattr(binaries, "MAX_BINARIES", 3)
    for number in range(5):
        put_kernel(tmp_path / "cache", f"F{number}")
    kernels, notes = read_kernels(tmp_path / "cache")
    assert len(kernels) == 3
    assert "only the first 3 binaries were read" in notes


def test_a_binary_over_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tools(monkeypatch, tmp_path / "tools", cuobjdump='test -s "$2" && ' + usage_script())
    monkeypatch.setattr(binaries, "MAX_BINARY_BYTES", 100)
    put_kernel(tmp_path / "cache", binary=b"x" * 101)
    put_kernel(tmp_path / "cache", "B", binary=b"x" * 100)
    assert len(read_kernels(tmp_path / "cache").kernels) == 1


def test_a_tool_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tools(monkeypatch, tmp_path / "tools", cuobjdump="exec sleep 60")
    monkeypatch.setattr(binaries, "TOOL_TIMEOUT_S", 1.0)
    put_kernel(tmp_path / "cache")
    assert read_kernels(tmp_path / "cache").kernels == ()


def test_a_tool_that_floods_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tools(monkeypatch, tmp_path / "tools", cuobjdump="exec yes")
    monkeypatch.setattr(binaries, "TOOL_OUTPUT_BYTES", 1 << 16)
    put_kernel(tmp_path / "cache")
    assert read_kernels(tmp_path / "cache").kernels == ()

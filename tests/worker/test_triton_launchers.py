"""What a first launch would have a C compiler make is made ahead, or left to the launch; never a reason to fail."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelgate.tools.worker import triton_launchers

BACKEND = "triton.backends.nvidia.driver"


def backend(monkeypatch: pytest.MonkeyPatch, **names: object) -> None:
    monkeypatch.setitem(sys.modules, BACKEND, SimpleNamespace(**names))


def test_the_bridge_is_built_into_the_cache_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    backend(monkeypatch, CudaUtils=lambda: seen.append(os.environ["TRITON_CACHE_DIR"]))
    monkeypatch.setenv("TRITON_CACHE_DIR", "before")
    assert triton_launchers.build_bridge(tmp_path / "cache") == ""
    assert seen == [str(tmp_path / "cache")]
    assert os.environ["TRITON_CACHE_DIR"] == "before"


def test_a_bridge_that_cannot_be_built_is_a_reason_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise AssertionError("libcuda.so cannot found!")

    backend(monkeypatch, CudaUtils=fail)
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    assert triton_launchers.build_bridge(tmp_path / "cache") == "AssertionError: libcuda.so cannot found!"
    assert "TRITON_CACHE_DIR" not in os.environ


def test_launchers_are_built_where_triton_compiles_them_and_one_that_fails_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[str] = []

    def launcher(source: str, metadata: object) -> None:
        if source == "bad":
            raise RuntimeError("no compiler")
        built.append(source)

    kernels = [SimpleNamespace(src=name, metadata=None) for name in ("one", "bad", "two")]
    backend(monkeypatch, CudaLauncher=launcher)
    triton_launchers.build_launchers(kernels)
    assert built == []
    backend(monkeypatch, CudaLauncher=launcher, make_launcher=None)
    triton_launchers.build_launchers(kernels)
    assert built == ["one", "two"]

"""Wrong settings and paths on the command line: one sentence each, exit status 2, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgate.server.settings import SettingsError, checked_device, from_environment


def sentence_of(*arguments: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kernelgate.server", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **environ},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("threads", ["abc", "0", "257", "-1", "1.5"])
def test_a_number_of_threads_that_makes_no_sense_is_one_sentence(threads: str) -> None:
    with pytest.raises(SettingsError, match="use 1 to 256"):
        from_environment({"KERNELGATE_CPU_THREADS": threads})


def test_the_sentence_on_threads_reaches_the_user(tmp_path: Path) -> None:
    assert "KERNELGATE_CPU_THREADS=abc" in sentence_of("runs", "--data", str(tmp_path), KERNELGATE_CPU_THREADS="abc")


@pytest.mark.parametrize("device", ["tpu", "cuda:", "cuda:x", "CPU", "cuda:-1", "cpu\n"])
def test_a_device_that_no_host_has_is_refused_wherever_it_was_named(device: str) -> None:
    with pytest.raises(SettingsError, match="use cpu, cuda or cuda:N"):
        checked_device(device, "--device")
    with pytest.raises(SettingsError, match="KERNELGATE_DEVICE"):
        from_environment({"KERNELGATE_DEVICE": device})


@pytest.mark.parametrize("device", ["", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_a_device_that_a_host_may_have_is_taken(device: str) -> None:
    assert from_environment({"KERNELGATE_DEVICE": device}).device == device


def test_serve_names_the_devices_that_it_takes(tmp_path: Path) -> None:
    assert "use cpu, cuda or cuda:N" in sentence_of("serve", "--data", str(tmp_path), "--device", "tpu")


def test_an_audit_of_a_folder_says_which_file_is_wanted(tmp_path: Path) -> None:
    assert "is a folder" in sentence_of("audit", str(tmp_path))

"""Wrong settings and paths on the command line: one sentence each, exit status 2, no traceback."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pynvml
import pytest

from kernelgate.budget.ledger import Ledger
from kernelgate.server import preflight
from kernelgate.server.clients import carried_environment
from kernelgate.server.gpus import NoSuchDevice
from kernelgate.server.settings import Settings, SettingsError, checked_device, from_environment
from kernelgate.server.trouble import Trouble
from kernelgate.tools.kit.wire import Hello


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernelgate.server", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **environ},
    )  # fmt: skip


def sentence_of(*arguments: str, **environ: str) -> str:
    done = run(*arguments, **environ)
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


def test_where_there_is_no_ledger_an_audit_says_how_to_name_one(tmp_path: Path) -> None:
    said = sentence_of("audit", "--data", str(tmp_path))
    assert f"there is no ledger at {tmp_path / 'ledger.db'}: name its file, or its folder with --data" in said


def test_an_audit_of_a_run_that_is_not_there_names_the_command_that_lists_them(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.db").close()
    said = sentence_of("audit", "--run", "r99", "--data", str(tmp_path))
    assert f"unknown run 'r99' in {tmp_path / 'ledger.db'}; `kernelgate runs` lists those of your ledger." in said


@pytest.mark.parametrize("command", ["check", "remove"])
def test_a_task_that_is_not_there_names_the_command_that_lists_them(tmp_path: Path, command: str) -> None:
    said = sentence_of("tasks", command, "qqqq", "--data", str(tmp_path))
    assert "there is no task 'qqqq'; `kernelgate tasks list` shows what there is." in said


GAP = "network: TCP only; UDP gets out"


def test_a_server_that_must_confine_does_not_start_where_a_wall_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Hello(pid=1, torch="2", triton="3", confinement=("landlock",), gaps=(GAP,))

    async def hello_of(settings: Settings) -> Hello:
        return told

    monkeypatch.setattr(preflight, "hello_of", hello_of)
    with pytest.raises(Trouble, match=r"full confinement is required.* TCP only"):
        preflight.require_walls(Settings(data_dir=tmp_path, device="cpu"))
    told = told.model_copy(update={"gaps": ()})
    preflight.require_walls(Settings(data_dir=tmp_path, device="cpu"))
    assert told.model_copy(update={"confinement": ()}).why_not_confined


def test_confinement_is_required_by_a_variable_too() -> None:
    assert from_environment({"KERNELGATE_REQUIRE_CONFINEMENT": "1"}).require_confinement
    assert not from_environment({}).require_confinement
    with pytest.raises(SettingsError, match="neither 1"):
        from_environment({"KERNELGATE_REQUIRE_CONFINEMENT": "yes"})


def test_an_audit_of_a_folder_says_which_file_is_wanted(tmp_path: Path) -> None:
    assert f"is a folder; name the ledger file in it, such as {tmp_path / 'ledger.db'}" in sentence_of(
        "audit", str(tmp_path)
    )


ABSENT_GPU = "cuda:97"
USING_A_DEVICE = [("serve",), ("demo",), ("config", "claude-code"), ("config", "codex", "--write")]


@pytest.mark.parametrize("command", USING_A_DEVICE, ids=" ".join)
@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--device", ABSENT_GPU), "device 'cuda:97' is not here"),
        (("--tasks", "nosuch"), "there is no task folder"),
        (("--kernelbench", "nosuch"), "is no KernelBench checkout"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_is_not_on_this_host_is_said_before_a_command_starts(
    command: tuple[str, ...], option: tuple[str, str], words: str, tmp_path: Path
) -> None:
    home = {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path / "codex")}
    assert words in sentence_of(*command, "--data", str(tmp_path / "data"), *option, **home)
    assert not (tmp_path / "codex").exists(), "nothing that cannot work is written into a client's file"


def test_a_driver_that_does_not_answer_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object, **__: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    for call, does in (("nvmlInit", lambda: None), ("nvmlShutdown", lambda: None), ("nvmlDeviceGetCount", lost)):
        monkeypatch.setattr(pynvml, call, does)
    with pytest.raises(NoSuchDevice, match="does not answer"):
        preflight.require(Settings(data_dir=tmp_path, device="cuda:0"))
    preflight.require(Settings(data_dir=tmp_path, device="cpu"))


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_data_folder_that_cannot_be_used_is_said(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "name another with --data" in sentence_of(command, "--data", str(tmp_path / "file"))


def test_an_unknown_client_ends_like_any_other_wrong_word() -> None:
    assert "unknown client 'emacs': there is claude-code, claude-desktop, codex" in sentence_of("config", "emacs")


def test_an_entry_that_must_be_added_by_hand_is_shown_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("not = = toml", encoding="utf-8")
    done = run("config", "codex", "--write", CODEX_HOME=str(tmp_path))
    assert done.returncode == 2
    sentence, _, entry = done.stderr.partition("Add this by hand:\n")
    assert "was left as it is" in sentence
    assert "kernelgate" in tomllib.loads(entry)["mcp_servers"]


@pytest.mark.parametrize("given", ["../data", "./data/", "a/../../data"])
def test_a_relative_path_is_stored_as_the_place_that_it_names(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "a").mkdir(parents=True)
    monkeypatch.chdir(project)
    place = (tmp_path / "project/data") if given.startswith("./") else tmp_path / "data"
    for name in ("KERNELGATE_HOME", "KERNELGATE_KERNELBENCH", "KERNELGATE_TASKS"):
        settings = from_environment({name: given})
        assert place in (settings.data_dir, settings.kernelbench, *settings.task_dirs)
        assert carried_environment({name: given}) == {name: str(place)}
    text = run("config", "codex", "--data", given).stdout
    assert tomllib.loads(text.partition("\n\n")[2].partition("\n\n`")[0])["mcp_servers"]["kernelgate"]["args"] == [
        "serve", "--data", str(place)
    ]  # fmt: skip


def test_several_folders_of_tasks_are_each_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert carried_environment({"KERNELGATE_TASKS": f"one{os.pathsep}../two"}) == {
        "KERNELGATE_TASKS": f"{tmp_path / 'one'}{os.pathsep}{tmp_path.parent / 'two'}"
    }


def test_only_what_a_user_added_can_be_removed(tmp_path: Path) -> None:
    assert "softmax comes with kernelgate" in sentence_of("tasks", "remove", "softmax", "--data", str(tmp_path))
    assert "there is no task 'mine'" in sentence_of("tasks", "remove", "mine", "--data", str(tmp_path))

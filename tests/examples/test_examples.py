"""The examples do what they say: the mutator on the CPU device, the loop with a model against an API on loopback."""

import json
import os
import subprocess
import sys
import threading
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from typing import Any
from urllib.error import HTTPError

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import llm_loop
import mutate_triton
from session import COME_AGAIN, LONGEST_WAIT_S, TRIES, USUAL_WAIT_S, Stop, parted, patiently, wait_s

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 120
LIMIT_S = 110
BODY = "    def forward(self, x):\n        return torch.softmax(x, dim=0)\n"
WRONG = f"Another axis.\n\n```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n{BODY}```\nDone."
FUSED = WRONG.replace("Another axis.", "One fused\noperator.").replace("dim=0", "dim=-1")
SLOW = WRONG.replace("Another axis.", "In double\nprecision.").replace(
    "torch.softmax(x, dim=0)", "sum(torch.softmax(x.double(), dim=-1) for _ in range(8)).div(8).to(x.dtype)"
)


class FakeModel(HTTPServer):
    """Answers as chat completions do, one canned text after the other, and then no more."""

    def __init__(self, *texts: str) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.texts = list(texts)
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.timeout = LIMIT_S
        self.thread = threading.Thread(target=self.answer_all, args=(len(texts),), daemon=True)
        self.thread.start()

    def answer_all(self, count: int) -> None:
        for _ in range(count):
            self.handle_request()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Answering(BaseHTTPRequestHandler):
    """One request of the fake."""

    server: FakeModel

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.keys.append(self.headers["Authorization"])
        content = self.server.texts.pop(0)
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test says what went wrong."""


def run(example: str, *words: str, data: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(ROOT / "examples" / example), *words, "--"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "examples"), **environ}
    serve = ["--data", str(data), "--device", "cpu"]
    return subprocess.run([*command, *serve], capture_output=True, text=True, timeout=LIMIT_S, check=False, env=env)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_enough_to_read_at_once(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < MOST_LINES


def test_the_mutator_submits_kernels_and_says_which_was_best(tmp_path: Path) -> None:
    kept = tmp_path / "made" / "kept.jsonl"
    done = run("mutate_triton.py", "--count", "1", "--seed", "1", "--stream", str(kept), data=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = map(json.loads, kept.read_text(encoding="utf-8").splitlines())
    assert (set(line), line["id"]) == ({"id", "source", "note"}, "c1")
    assert "answers were right on the smallest workload, through Triton's interpreter" in done.stdout
    assert "best of run r1 on cpu: c1 {'BLOCK': " in done.stdout


@pytest.mark.long
def test_the_mutator_climbs_from_parent_to_child(tmp_path: Path) -> None:
    done = run("mutate_triton.py", "--count", "4", "--seed", "2", data=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line[:2] for line in done.stdout.splitlines()[:4]] == ["c1", "c2", "c3", "c4"]


def test_a_mutation_changes_one_parameter_and_repeats_nothing() -> None:
    genes = {"BLOCK": 256, "WARPS": 1, "STAGES": 1}
    tried, dice = [genes], Random(3)
    while (child := mutate_triton.mutated(genes, tried, dice)) is not None:
        assert sum(child[name] != genes[name] for name in genes) == 1
        assert child not in tried
        tried.append(child)
    assert len(tried) == sum(len(values) for values in mutate_triton.SPACE.values()) - len(genes) + 1


def test_a_line_of_a_stream_names_the_parent_that_it_came_from() -> None:
    line = json.loads(mutate_triton.line_of("c2", {"source": "x = 1", "note": "try", "parent_id": "c1", "up_to": "x"}))
    assert line == {"id": "c2", "parent": "c1", "source": "x = 1", "note": "try"}


def test_what_was_timed_beats_what_was_not_and_failures_come_last() -> None:
    kernel = {"kernel": {"registers": 30, "spill_bytes": 8}, "occupancy": {"share": 0.5}}
    checked = {"status": "ok", "report": {"kernels": [kernel]}}
    timed = {**checked, "last_report": {"ratio": 0.5}}
    failed = {"status": "failed", "report": {"kernels": [kernel]}}
    assert mutate_triton.score_of(checked) == (0.0, -8, 0.5, -30)
    assert mutate_triton.score_of(failed) < mutate_triton.score_of(checked) < mutate_triton.score_of(timed)


def loop(data: Path, *texts: str) -> tuple[FakeModel, list[str]]:
    """Let the loop play against these answers of a model; what the model was asked, and what was printed."""
    model = FakeModel(*texts)
    named = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "secret", "OPENAI_MODEL": "some-model"}
    done = run("llm_loop.py", "softmax", "--rounds", str(len(texts)), data=data, **named)
    assert done.returncode == 0, done.stderr
    model.thread.join(LIMIT_S)
    return model, done.stdout.splitlines()


def test_a_model_is_told_what_was_found_and_its_next_answer_is_better(tmp_path: Path) -> None:
    model, printed = loop(tmp_path, WRONG, "No idea yet.", SLOW)
    assert model.texts == []
    assert {one["model"] for one in model.asked} == {"some-model"}
    assert set(model.keys) == {"Bearer secret"}
    said = [one["messages"][-1]["content"] for one in model.asked]
    assert "The device is cpu" in said[0]
    assert "def get_inputs" in said[0]
    assert said[1].startswith("check: ")
    assert "of the elements are wrong" in said[1]
    assert said[2] == "There was no Python block in your answer."
    assert "3. In double precision." in printed
    best = json.loads(printed[-1].partition(": ")[2])
    assert [(one["candidate_id"], one["note"]) for one in best] == [("c2", "In double precision.")]


@pytest.mark.long
def test_a_candidate_that_looks_faster_is_timed_precisely_and_profiled(tmp_path: Path) -> None:
    _, printed = loop(tmp_path, FUSED)
    assert [line.split(":")[0].strip() for line in printed if ": " in line][:3] == ["quick", "precise", "profile"]


def test_an_api_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_MODEL", "m")
    with pytest.raises(Stop, match=r"http://127\.0\.0\.1:9/v1/chat/completions gave no answer: "):
        llm_loop.ask_model([])


class Busy:
    """Answers with these statuses, one after the other, and then with words."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.waited_s: list[float] = []

    def ask(self) -> str:
        if not self.statuses:
            return "words"
        header = Message()
        header["Retry-After"] = "7"
        raise HTTPError("http://h", self.statuses.pop(0), "come again", header, None)


def test_who_is_told_to_come_again_waits_as_long_as_it_was_told_and_goes_on() -> None:
    busy = Busy(*COME_AGAIN)
    assert patiently(busy.ask, busy.waited_s.append) == "words"
    assert busy.waited_s == [7.0, 7.0]


@pytest.mark.parametrize(("statuses", "waits"), [((429,) * (TRIES + 1), TRIES - 1), ((401,), 0)])
def test_it_does_not_wait_for_ever_nor_for_what_waiting_does_not_mend(statuses: tuple[int, ...], waits: int) -> None:
    busy = Busy(*statuses)
    with pytest.raises(HTTPError):
        patiently(busy.ask, busy.waited_s.append)
    assert len(busy.waited_s) == waits


@pytest.mark.parametrize(
    ("said", "expected"),
    [("3", 3.0), ("86400", LONGEST_WAIT_S), ("Wed, 21 Oct 2026 07:28:00 GMT", USUAL_WAIT_S), (None, USUAL_WAIT_S)],
)
def test_a_wait_is_bounded_whatever_the_server_says(said: str | None, expected: float) -> None:
    assert wait_s(said) == expected


def test_what_the_server_refuses_ends_the_program_with_its_sentence(tmp_path: Path) -> None:
    done = run("llm_loop.py", "softmx", data=tmp_path, OPENAI_MODEL="m")
    assert done.stderr == "there is no task 'softmx'; did you mean softmax?\n"
    assert done.returncode == 1


def test_without_a_model_it_says_which_variables_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_MODEL", raising=False)
    done = run("llm_loop.py", "softmax", data=tmp_path)
    assert "OPENAI_MODEL" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Fuse.\n```python\nx = 1\n```\nmore", ("Fuse.", "x = 1\n")),
        ("Fuse.\n```\nx = 1\n```", ("Fuse.", "x = 1\n")),
        ("Only\nwords.", ("Only words.", "")),
    ],
)
def test_hypothesis_and_source_are_read_from_an_answer(answer: str, expected: tuple[str, str]) -> None:
    assert llm_loop.split(answer) == expected


def test_words_behind_two_dashes_are_the_servers() -> None:
    assert parted(["a", "--", "--data", "d"]) == (["a"], ["--data", "d"])
    assert parted(["a"]) == (["a"], [])

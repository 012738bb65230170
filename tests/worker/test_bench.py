"""The referee conducts a candidate in a process of its own: honest ones pass, hostile ones are told what they are."""

from typing import Any

import pytest
from bench_tasks import HONEST, first_problem, forward, task

WHOLE_CALL: list[list[Any]] = [
    ["load"],
    ["compare", "small", "normal"],
    ["prepare", "small", 3],
    ["block", "baseline", 6, {"verify": False}],
    ["block", "candidate", 6, {"verify": True}],
    ["block", "candidate", 12, {"verify": True}],
]


def test_an_honest_candidate_passes_the_whole_call(conduct: Any) -> None:
    outcome = conduct(task(), HONEST, WHOLE_CALL)
    assert first_problem(outcome) == "none"
    prepared, baseline, candidate, longer = outcome["results"][2:]
    assert prepared["candidate_us"] > 0
    assert prepared["baseline_us"] > 0
    assert len(baseline["samples_us"]) == 6
    assert len(candidate["samples_us"]) in (5, 6), "one call of a row may be on inputs of another kind"
    assert len(longer["samples_us"]) in (11, 12)
    assert candidate["comparison"]["problem"] == "none"
    assert baseline["comparison"] is None
    assert len(candidate["outside_us"]) == len(candidate["samples_us"])
    assert min(candidate["outside_us"]) > 0
    assert outcome["exit"] == 0


HONEST_VARIANTS = {
    "workspace reuse": forward(
        "if self.work is None: self.work = torch.empty_like(x)\n"
        "torch.exp(x - x.amax(-1, keepdim=True), out=self.work)\n"
        "return self.work / self.work.sum(-1, keepdim=True)",
        init="self.work = None",
    ),
    "a reused output buffer": forward(
        "if self.out is None: self.out = torch.empty_like(x)\n"
        "self.out.copy_(torch.softmax(x, -1))\nreturn self.out",
        init="self.out = None",
    ),
    "in place on its own copy": forward(
        "y = x.clone()\ny.sub_(y.amax(-1, keepdim=True)).exp_()\nreturn y.div_(y.sum(-1, keepdim=True))"
    ),
    "float64 inside": forward("return torch.softmax(x.double(), -1).float()"),
    "a strided answer": forward("return torch.softmax(x.t(), 0).t()"),
    "prints": forward("print('correct!', flush=True)\nreturn torch.softmax(x, -1)"),
    "no module": "import torch\nclass ModelNew:\n    def __call__(self, x):\n        return torch.softmax(x, -1)\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST_VARIANTS)
def test_honest_candidates_are_not_accused(conduct: Any, name: str) -> None:
    assert first_problem(conduct(task(), HONEST_VARIANTS[name], WHOLE_CALL)) == "none"


def test_extra_files_are_imported_beside_the_candidate(conduct: Any) -> None:
    files = {
        "candidate.py": forward("return rows(x)", "from helper import rows"),
        "helper.py": "import torch\ndef rows(x):\n    return torch.softmax(x, -1)\n",
    }
    assert first_problem(conduct(task(), files, WHOLE_CALL)) == "none"


SAME = "return torch.softmax(x, -1)"
HOSTILE = {
    "mutates its input": (forward("y = torch.softmax(x, -1)\nx.zero_()\nreturn y"), "input_mutation"),
    "wrong shape": (forward("return torch.softmax(x, -1)[:-1]"), "wrong_shape"),
    "wrong dtype": (forward("return torch.softmax(x, -1).double()"), "wrong_dtype"),
    "a list": (forward("return torch.softmax(x, -1).tolist()"), "wrong_type"),
    "a subclass": (forward("return torch.nn.Parameter(torch.softmax(x, -1))"), "wrong_type"),
    "nothing": (forward("return None"), "wrong_type"),
    "more than asked": (forward("return torch.softmax(x, -1), x"), "wrong_type"),
    "nan": (forward("y = torch.softmax(x, -1)\ny[0, 0] = float('nan')\nreturn y"), "nonfinite"),
    "zeros": (forward("return torch.zeros_like(x)"), "wrong_values"),
    "its input": (forward("return x"), "wrong_values"),
    "a replaced check": (
        forward("return torch.zeros_like(x)", "torch.allclose = lambda *a, **k: True\ntorch.equal = torch.allclose"),
        "wrong_values",
    ),
    "leaves": (forward("import os\nos._exit(3)"), "gone"),
    "raises": (forward("raise ValueError('no')"), "raised"),
    "raises SystemExit": (forward("raise SystemExit(0)"), "raised"),
    "an error that cannot be printed": (
        forward("raise Odd()", "class Odd(Exception):\n    def __str__(self):\n        raise RuntimeError('hidden')"),
        "raised",
    ),
    "no memory": (forward("return torch.empty(1 << 50)"), "out_of_memory"),
    "no ModelNew": ("x = 1\n", "raised"),
    "a syntax error": ("def :\n", "raised"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_candidates_are_told_what_they_are(conduct: Any, name: str) -> None:
    source, expected = HOSTILE[name]
    outcome = conduct(task(), source, WHOLE_CALL[:2])
    assert first_problem(outcome) == expected


def test_a_raise_comes_with_its_message_and_traceback(conduct: Any) -> None:
    outcome = conduct(task(), forward("raise ValueError('the tile is too wide')"), WHOLE_CALL[:2])
    fault = outcome["results"][1]
    assert fault["error"] == "ValueError: the tile is too wide"
    assert fault["stage"] == "forward"
    assert 'File "candidate.py", line' in fault["log"]
    assert "/" not in fault["log"], "no path of this host, no frame of ours"


SOCKET = "import gc, json, socket, struct\nLINE = [s for s in gc.get_objects() if isinstance(s, socket.socket)][-1]\n"
FRAMED = "LINE.sendall(struct.pack('>I', len(body)) + body)"
SENT = {
    "rubbish": "LINE.sendall(b'\\xff' * 64)",
    "an answer before the question": "body = json.dumps({'sequence': 9, 'ok': {}}).encode()\n" + FRAMED,
    "a number that is none": (
        "body = b'{\"sequence\": 4, \"ok\": {\"samples_ns\": [1e999], \"answers\": []}}'\n" + FRAMED
    ),
    "an endless frame": "LINE.sendall(struct.pack('>I', 1 << 31))",
}  # fmt: skip


@pytest.mark.parametrize("what", SENT)
def test_whatever_is_written_on_the_private_line_is_no_answer(conduct: Any, what: str) -> None:
    outcome = conduct(task(), forward(f"{SENT[what]}\n{SAME}", SOCKET), WHOLE_CALL[:2])
    assert first_problem(outcome) == "broken_protocol"


def test_descriptors_that_a_candidate_sends_never_reach_the_referee(conduct: Any) -> None:
    send = "socket.send_fds(LINE, [b'\\xff'], [0] * 200)"
    assert first_problem(conduct(task(), forward(f"{send}\n{SAME}", SOCKET), WHOLE_CALL[:2])) == "broken_protocol"


@pytest.mark.parametrize(
    ("cheat", "body"),
    {
        "by address": "key = x.data_ptr()\nif key not in SEEN: SEEN[key] = torch.softmax(x, -1)\nreturn SEEN[key]",
        "by call count": (
            "SEEN['n'] = SEEN.get('n', 0) + 1\nif SEEN['n'] > 4: return SEEN['y']\n"
            "SEEN['y'] = torch.softmax(x, -1)\nreturn SEEN['y']"
        ),
    }.items(),
)  # fmt: skip
def test_a_replayed_answer_is_found_in_the_timed_outputs(conduct: Any, cheat: str, body: str) -> None:
    blocks = [["block", "candidate", 24, {"verify": True}] for _ in range(4)]
    outcome = conduct(task(), forward(body, "SEEN = {}"), [["load"], ["prepare", "small", 3], *blocks])
    assert first_problem(outcome) == "wrong_values", cheat


def test_inputs_spoiled_to_slow_the_baseline_are_found_and_put_back(conduct: Any) -> None:
    body = "SEEN.append(x)\nif len(SEEN) > 20: x.mul_(1e-39)\nreturn torch.softmax(x, -1)"
    steps = [["load"], ["prepare", "small", 1], *([["block", "candidate", 8, {"verify": False}]] * 3)]
    assert first_problem(conduct(task(), forward(body, "SEEN = []"), steps)) == "input_mutation"


def test_work_in_a_thread_after_the_answer_is_not_finished_when_it_is_compared(conduct: Any) -> None:
    body = (
        "y = torch.zeros_like(x)\n"
        "def later():\n    time.sleep(0.05)\n    y.copy_(torch.softmax(x, -1))\n"
        "threading.Thread(target=later).start()\nreturn y"
    )
    outcome = conduct(task(), forward(body, "import threading, time"), WHOLE_CALL[:2])
    assert first_problem(outcome) == "wrong_values"
    assert outcome["results"][1]["looks_like"] == "zeros"


def test_a_forged_clock_changes_nothing(conduct: Any) -> None:
    before = "import time\ntime.perf_counter_ns = lambda: 0\ntime.perf_counter = lambda: 0.0"
    outcome = conduct(task(), forward(SAME, before), WHOLE_CALL)
    block = outcome["results"][4]
    assert first_problem(outcome) == "none"
    assert min(block["samples_us"]) > 0
    slow = forward(f"import time\ntime.sleep(0.002)\n{SAME}", "import kernelgate.tools.worker.timing as timing\n"
                   "timing.time_calls.__defaults__ = (lambda: 0,)")  # fmt: skip
    block = conduct(task(), slow, WHOLE_CALL)["results"][4]
    assert min(block["samples_us"]) > 1_500
    assert block["samples_us"] == block["outside_us"], "what the candidate says of its time is not used"


def test_more_samples_than_calls_are_no_answer(conduct: Any) -> None:
    before = (
        "import kernelgate.tools.worker.candidate as child\nold = child.time_calls\n"
        "child.time_calls = lambda *a, **k: old(*a, **k) * 2"
    )
    assert first_problem(conduct(task(), forward(SAME, before), WHOLE_CALL[:2])) == "broken_protocol"


LAYER = """
import torch
SIZE = 16
class Model(torch.nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
        self.norm = torch.nn.BatchNorm1d(size)
        self.drop = torch.nn.Dropout(0.5)
        self.scale = scale
    def forward(self, x, labels, mask, factor, extra):
        y = self.drop(self.norm(self.linear(x))) * self.scale * factor
        picked = y[torch.arange(len(labels)), labels]
        return {"y": y.masked_fill(mask, 0.0), "more": (picked, labels + 1, mask, y.sum(), 3, None)}
def get_inputs():
    x = torch.randn(SIZE, 8).t()
    return [x, torch.randint(0, SIZE, (8,)), torch.rand(8, SIZE) > 0.5, 0.25, [torch.tensor(2.0), torch.empty(0, 3)]]
def get_init_inputs():
    return [SIZE, 1.5]
"""


def test_nested_arguments_weights_buffers_and_dropout_agree_on_both_sides(conduct: Any) -> None:
    candidate = LAYER.split("def get_inputs")[0].replace("class Model", "class ModelNew")
    steps = [["load"], *([["compare", "small", "original"]] * 2), ["compare", "small", "large"], *WHOLE_CALL[2:]]
    assert first_problem(conduct(task(LAYER), candidate, steps)) == "none"


@pytest.mark.parametrize(
    ("change", "problem", "output"),
    [
        ("y.sum()", "wrong_values", "['more'][3]"),
        ("labels + 1", "wrong_values", "['more'][1]"),
        (" 3,", "wrong_values", "['more'][4]"),
        ("mask, y", "wrong_values", "['more'][2]"),
    ],
)
def test_the_first_wrong_output_of_several_is_named(conduct: Any, change: str, problem: str, output: str) -> None:
    replacement = {"y.sum()": "y.sum() + 1", "labels + 1": "labels + 2", " 3,": " 4,", "mask, y": "~mask, y"}[change]
    candidate = LAYER.split("def get_inputs")[0].replace("class Model", "class ModelNew").replace(change, replacement)
    result = conduct(task(LAYER), candidate, [["load"], ["compare", "small", "original"]])["results"][1]
    assert (result["problem"], result["output"]) == (problem, output)


def test_weights_are_lent_where_names_shapes_and_dtypes_agree(conduct: Any) -> None:
    packed = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        torch.rand(3)
        self.linear = torch.nn.Linear(size, size)
        self.norm = torch.nn.BatchNorm1d(size)
        self.drop = torch.nn.Dropout(0.5)
        self.scale = scale
        self.packed, self.version = None, None
    def forward(self, x, labels, mask, factor, extra):
        weight = self.linear.weight
        if self.version != weight._version:
            self.packed, self.version = weight.t().contiguous(), weight._version
        y = self.drop(self.norm(x @ self.packed + self.linear.bias)) * self.scale * factor
        picked = y[torch.arange(len(labels)), labels]
        return {"y": y.masked_fill(mask, 0.0), "more": (picked, labels + 1, mask, y.sum(), 3, None)}
"""
    assert first_problem(conduct(task(LAYER, tolerances={}), packed, WHOLE_CALL)) == "none"


TRITON = """
import torch, triton
import triton.language as tl
@triton.jit
def rows(x, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    value = tl.load(x + at, mask=inside, other=-float("inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + at, value / tl.sum(value, axis=0), mask=inside)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y
"""


def test_a_triton_candidate_is_interpreted_on_the_cpu(conduct: Any) -> None:
    assert first_problem(conduct(task(), TRITON, WHOLE_CALL[:2], language="triton")) == "none"


def test_a_launch_that_the_interpreter_would_not_finish_is_refused(conduct: Any) -> None:
    endless = TRITON.replace("[(x.shape[0],)]", "[(1 << 20,)]")
    fault = conduct(task(), endless, WHOLE_CALL[:2], language="triton")["results"][1]
    assert fault["kind"] == "raised"
    assert "1,048,576 programs" in fault["error"]


def test_a_profile_names_operators(conduct: Any) -> None:
    profile = conduct(task(), HONEST, [["load"], ["profile", "small", 3, {"counters": True}]])["results"][1]
    assert any("softmax" in operator["name"] for operator in profile["operators"])
    assert profile["call_us"] > 0
    assert sum(operator["share"] for operator in profile["operators"]) <= 1.001


def test_the_time_of_a_call_is_that_without_the_profiler(conduct: Any) -> None:
    slow_when_watched = HONEST.replace(
        "return ", "import time\n        time.sleep(0.2 * torch.autograd._profiler_enabled())\n        return "
    )
    assert slow_when_watched != HONEST
    profile = conduct(task(), slow_when_watched, [["load"], ["profile", "small", 1, {"counters": True}]])["results"][1]
    assert 0 < profile["call_us"] < 100_000


def test_a_buffer_of_the_candidates_own_is_its_own_affair(conduct: Any) -> None:
    stateful = task(BATCHNORM)
    body = "\n".join((
        "if self.packed[0] == 0:",
        "    self.packed.fill_(2.0)",
        "return self.bn(x) * (self.packed[0] / 2.0)",
    ))  # fmt: skip
    init = "self.bn = torch.nn.BatchNorm1d(8); self.register_buffer('packed', torch.zeros(3), persistent=False)"
    assert first_problem(conduct(stateful, forward(body, init=init), WHOLE_CALL)) == "none"


BATCHNORM = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(8)
    def forward(self, x):
        return self.bn(x)
def get_inputs():
    return [torch.rand(16, 8)]
def get_init_inputs():
    return []
"""

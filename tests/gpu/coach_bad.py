"""The coach's bad input: candidates, moments and hosts under which a profile must still say one clear thing, and end.

A part of `coach_run.py`: `python tests/gpu/coach_run.py OUT.json --part bad --seconds 120`. Two servers: one as it
comes, and one that sees neither cupti-python nor ncu (an empty folder and a null file lie over them, in a mount
namespace of its own) but, where a case wants it, a stand-in for ncu that hangs or writes too much.
"""

import importlib.util
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import gpu_path as gpu_path  # before the package

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from coach_steps import DEPTH, FAILURES, STEP_S, lay_out, line_of, profiled
from gpu_calls import triton_softmax
from gpu_host import TooLong, limited, say
from one_fault_case import plain
from one_fault_tasks import SMALL_SIGMOID, FaultTask
from stdio_server import StdioServer, stdio_server

from kernelgate.tools.worker.counters import PROGRAM

HANGS: Final = "# ncu: hangs"
TOO_LARGE: Final = "# ncu: too large a report"
"""What in a candidate's source tells the stand-in what to do."""
HANGS_S: Final = 90
REPORT_BYTES: Final = 65 << 20
"""A little more than is read; all of it a hole."""
SAMPLES: Final = r'begun\\": true'
"""The other profiler was at work: what the reply then says is written down, and one as the other is right."""
READY_S: Final = 8.0
INTERVAL_NS: Final = 150_000
FOLDERS: Final = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")
"""Where ncu lies if not on PATH."""
WITHOUT: Final = """set -e
empty=$1; shift
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mount --bind "$empty" "$1"; else mount --bind /dev/null "$1"; fi
  shift
done
shift
exec "$@"
"""

VIEW: Final = FaultTask(
    "flat_view",
    "import torch\n\nROWS = 4096\nCOLS = 4096\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    "        return x.reshape(-1)\n\n\ndef get_inputs():\n    return [torch.randn(ROWS, COLS)]\n\n\n"
    "def get_init_inputs():\n    return []\n",
    {"ROWS": 64, "COLS": 256},
)
"""Whose answer is a view of its input: nothing is to be done."""
_MANY: Final = plain(
    "def forward(self, x):\n    count = torch.zeros(1, device=x.device)\n    for _ in range(9_998):\n"
    "        count.add_(1)\n    return torch.sigmoid(x)"
)
_VIEW: Final = plain("def forward(self, x):\n    return x.view(-1)")
_LIBRARY: Final = plain("def forward(self, x):\n    return torch.sigmoid(x)")
_ON_THE_HOST: Final = plain("def forward(self, x):\n    return torch.sigmoid(x.cpu()).to(x.device)")
_SHY: Final = plain(
    "def forward(self, x):\n    if torch.autograd._profiler_enabled():\n"
    "        raise RuntimeError('not while I am watched')\n    return torch.sigmoid(x)"
)

Where = Literal["with", "without"]


@dataclass(frozen=True)
class BadCase:
    """One thing that may go wrong, and what the reply must say of it."""

    name: str
    source: str
    says: str
    """Found in the reply, or the case is not right: a pattern."""
    task: FaultTask | str = SMALL_SIGMOID
    depth: str = DEPTH
    where: Where = "with"
    """Whether the server sees cupti-python and ncu."""
    stand_in: bool = False
    """Of ncu, on PATH."""
    attached: bool = False
    """Another process samples the device's counters meanwhile."""
    on_cpu: bool = False
    """It makes sense on a CPU too."""
    limit_s: int = 40
    charged_s_at_most: float = 5.0


CASES: Final = (
    BadCase("raises_when_watched", _SHY, "not while I am watched", on_cpu=True),
    BadCase("only_a_view", _VIEW, "nothing (to profile|left to gain)|close to its bound|impossible", VIEW, on_cpu=True),
    BadCase("library_calls", _LIBRARY, '"own_kernel_share": 0'),
    BadCase("on_the_host", _ON_THE_HOST, '"kind": "sync"'),
    BadCase("ten_thousand_launches", _MANY, '"kind": "(many_launches|overhead)"', on_cpu=True, limit_s=30),
    BadCase("full_depth_on_a_cpu", f"# full\n{_LIBRARY}", "Nsight Compute profiles GPUs", depth="full", on_cpu=True),
    BadCase(
        "full_depth", triton_softmax(701), '"stalls": \\[\\{.*"hot": \\[\\{', task="softmax", depth="full", limit_s=40,
        charged_s_at_most=20.0,
    ),
    BadCase("another_profiler", triton_softmax(702), SAMPLES, task="softmax", attached=True),
    BadCase(
        "another_profiler_at_full_depth", triton_softmax(703), SAMPLES, task="softmax", depth="full", attached=True,
        limit_s=40, charged_s_at_most=20.0,
    ),
    BadCase("no_counters", triton_softmax(704), "pip install --target", task="softmax", where="without"),
    BadCase(
        "no_ncu", triton_softmax(705), "install NVIDIA Nsight Compute", task="softmax", depth="full", where="without"
    ),
    BadCase(
        "too_large_a_report", f"{TOO_LARGE}\n{triton_softmax(706)}", "MiB is too large to be read", task="softmax",
        depth="full", where="without", stand_in=True,
    ),
    BadCase(
        "ncu_hangs", f"{HANGS}\n{triton_softmax(707)}", "took too long", task="softmax", depth="full", where="without",
        stand_in=True, limit_s=45, charged_s_at_most=32.0,
    ),
    BadCase(
        "ten_thousand_launches_at_full_depth", f"# full\n{_MANY}", '"kind": "many_launches"', depth="full", limit_s=90,
        charged_s_at_most=32.0,
    ),
)  # fmt: skip


class Keeper(Protocol):
    """`coach_run.Book`."""

    def left_s(self) -> float:
        """Seconds for more."""
        ...

    def keep(self, part: str, name: str, told: dict[str, Any]) -> None:
        """Written down at once."""
        ...


def is_right(case: BadCase, told: dict[str, Any]) -> bool:
    """The reply says what it must, the candidate paid no more than it may, and nothing was of our fault."""
    if "error" in told:
        return False
    profile = told.get("profile", {})
    charged = profile.get("lease_s") or 0.0
    return bool(re.search(case.says, json.dumps(told))) and charged <= case.charged_s_at_most


def stand_in_text() -> str:
    """A program named ncu that does what the candidate's source tells it: sleeps, or leaves a report of one hole."""
    return f"""#!{sys.executable}
import pathlib, sys, time

arguments = sys.argv[1:]
if "-o" in arguments:
    source = pathlib.Path(arguments[-2], "candidate.py").read_text()
    if {HANGS!r} in source:
        time.sleep({HANGS_S})
    if {TOO_LARGE!r} in source:
        with open(arguments[arguments.index("-o") + 1], "wb") as report:
            report.truncate({REPORT_BYTES})
"""


@contextmanager
def folder_of_the_stand_in() -> Iterator[Path]:
    """An empty folder that a candidate's walls let it read: below the interpreter's own."""
    folder = Path(tempfile.mkdtemp(prefix="kernelgate-ncu-", dir=sys.prefix))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


def put_stand_in(folder: Path, *, there: bool) -> None:
    """Have `ncu` in the folder, or not."""
    program = folder / "ncu"
    if there:
        program.write_text(stand_in_text(), encoding="utf-8")
        program.chmod(0o755)
    else:
        program.unlink(missing_ok=True)


def to_hide() -> list[str]:
    """The folder of cupti-python and each ncu, with symbolic links followed."""
    spec = importlib.util.find_spec("cupti")
    found = [Path(spec.origin).parent] if spec is not None and spec.origin is not None else []
    places = [Path(part) for part in os.get_exec_path()] + [Path(FOLDERS[0]), *sorted(Path(FOLDERS[1]).glob("*"))]
    found += [place / "ncu" for place in places if (place / "ncu").is_file()]
    return list(dict.fromkeys(os.path.realpath(path) for path in found))


def hiding(scratch: Path) -> tuple[str, ...]:
    """What to put before a command so that it and its children see none of that; raises OSError where that cannot be.

    Empty where there is nothing to hide.
    """
    hidden = to_hide()
    if not hidden:
        return ()
    empty = scratch / "empty"
    empty.mkdir(exist_ok=True)
    empty.chmod(0o755)
    before = ("unshare", "--mount", "--propagation", "private", "sh", "-c", WITHOUT, "sh", str(empty), *hidden, "--")
    done = subprocess.run([*before, "true"], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        raise OSError(f"{', '.join(hidden)} cannot be hidden from a server here: {done.stderr.strip()[-300:]}")
    return before


@contextmanager
def sampling() -> Iterator[str]:
    """Another process that samples the device's counters, with what it said; it ends with its standard input."""
    command = [sys.executable, "-P", "-c", PROGRAM, str(INTERVAL_NS), ""]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        try:
            yield _begun(process)
        finally:
            process.kill()


def _begun(process: subprocess.Popen[bytes]) -> str:
    """What it said on the way to its window: `begun` if it samples."""
    assert process.stdin is not None
    assert process.stdout is not None
    said: list[str] = []
    with suppress(BrokenPipeError):
        for word in (b"", b"arm\n", b"begin\n"):
            process.stdin.write(word)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], READY_S)[0]:
                said.append("nothing in time")
                break
            said.append(process.stdout.readline().decode().strip())
    return " ".join(said)[:600]


def tried(case: BadCase, server: StdioServer) -> dict[str, Any]:
    """One case on a run of its own."""
    name = case.task if isinstance(case.task, str) else case.task.name
    try:
        run_id = server.call("start_run", task=name, rule="flat")["run"]["run_id"]
        beside: AbstractContextManager[str] | None = sampling() if case.attached else None
        return profiled(server, run_id, case.source, case.depth, beside)
    except FAILURES as error:
        return {"error": f"{type(error).__name__}: {error}"[:2000]}


def on_one_server(book: Keeper, kind: str, where: Where, chosen: Sequence[BadCase]) -> None:
    """Cases that a server of one kind meets; after one that took too long it is another server."""
    left = list(chosen)
    while left and book.left_s() >= STEP_S:
        with ExitStack() as opened:
            scratch = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="kernelgate-bad-")))
            lay_out((case.task for case in CASES if isinstance(case.task, FaultTask)), scratch / "tasks")
            stand_in = opened.enter_context(folder_of_the_stand_in())
            path = os.pathsep.join((str(stand_in), os.environ.get("PATH", os.defpath)))
            before = hiding(scratch) if where == "without" else ()
            more = ("--tasks", str(scratch / "tasks"))
            device = "cuda:0" if kind == "cuda" else "cpu"
            server = opened.enter_context(
                stdio_server(scratch, device, more, before=before, environment={**os.environ, "PATH": path})
            )
            server.greet()
            went_well = True
            while left and went_well and book.left_s() >= STEP_S:
                case = left.pop(0)
                put_stand_in(stand_in, there=case.stand_in)
                went_well = told_of(book, case, server)
    for case in left:
        book.keep("bad", case.name, {"right": False, "error": "no time was left"})


def told_of(book: Keeper, case: BadCase, server: StdioServer) -> bool:
    """Try a case within its limit and write it down; False if the server is of no more use."""
    in_time = True
    try:
        with limited(int(min(case.limit_s, book.left_s()))):
            told = tried(case, server)
    except TooLong as error:
        told, in_time = {"error": f"it took {error}"}, False
    right = is_right(case, told)
    book.keep("bad", case.name, {"right": right, "says": case.says, **told})
    missing = told.get("profile", {}).get("missing", "")
    say(f"  {'right' if right else 'WRONG'} {case.name}: {line_of(told)} {missing and f'[missing: {missing}]'}")
    return in_time


def bad(book: Keeper, kind: str, only: Sequence[str] = ()) -> None:
    """All cases that make sense on a kind of device, those of the server that is short of something first.

    `only`: names of some of them; none is all.
    """
    for where in ("without", "with"):
        chosen = [case for case in CASES if case.where == where and (kind == "cuda" or case.on_cpu)]
        chosen = [case for case in chosen if not only or case.name in only]
        if kind == "cuda":
            chosen = [case for case in chosen if case.name != "full_depth_on_a_cpu"]
        try:
            on_one_server(book, kind, where, chosen)
        except OSError as error:
            for case in chosen:
                book.keep("bad", case.name, {"right": False, "error": f"it could not be made: {error}"})
            say(f"  {where}: {error}")

"""The official conformance suite, against the server as it is and against the server with the suite's fixtures.

What is expected to fail stands with its reason in `expected_failures.toml`; a failure that is not there and a pass that
is there both fail the run. The suite speaks HTTP only.
"""

import json
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from node_box import NodeBox, Seen

HERE: Final = Path(__file__).resolve().parent
EXPECTED: Final = HERE / "expected_failures.toml"
SERVED: Final = HERE / "served_over_http.py"
PACKAGE: Final = "@modelcontextprotocol/conformance"
VERSIONS: Final = ("2025-11-25", "2026-07-28")
"""The newest of each era."""
FIXTURE_FREE: Final = frozenset((
    "server-initialize", "server-session-lifecycle", "server-stateless", "ping", "tools-list", "resources-list",
    "prompts-list", "server-sse-multiple-streams", "dns-rebinding-protection", "caching",
    "http-header-validation", "sep-2164-resource-not-found",
))  # fmt: skip
"""Scenarios that ask for nothing by name: all others fail or pass on a real server for a reason of no interest."""
START_LIMIT_S: Final = 60.0
LEAVE_LIMIT_S: Final = 10.0
FAILED: Final = "FAILURE"

Kind = Literal["real", "fixtures"]


@dataclass(frozen=True)
class Outcome:
    """One run of the suite: how many checks passed, and `scenario/check` of those that failed → what the suite says."""

    passed: int
    failed: dict[str, str]


def real_server(data: Path) -> list[str]:
    """The server as it is."""
    serve = ["serve", "--http", "127.0.0.1:0", "--data", str(data), "--device", "cpu"]
    return [sys.executable, "-P", "-m", "kernelgate.server", *serve]


def fixture_server(data: Path) -> list[str]:
    """The same with the suite's fixtures."""
    return [sys.executable, str(SERVED), str(data)]


SERVERS: Final = {"real": real_server, "fixtures": fixture_server}


@contextmanager
def serving(command: Sequence[str], log: Path) -> Iterator[str]:
    """A server over HTTP, up; its address. What it says goes into a file."""
    with log.open("w") as stderr, subprocess.Popen(command, stdout=stderr, stderr=stderr) as server:
        try:
            yield _address(server, log)
        finally:
            server.terminate()
            try:
                server.wait(LEAVE_LIMIT_S)
            except subprocess.TimeoutExpired:
                server.kill()


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and server.poll() is None:
        found = re.search(r"^kernelgate serves (\S+)", log.read_text(encoding="utf-8"), re.MULTILINE)
        if found is not None:
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"the server did not come up:\n{log.read_text(encoding='utf-8')}")


def expected(kind: Kind, version: str, path: Path = EXPECTED) -> dict[str, str]:
    """`scenario/check` → why it is expected to fail; raises `ValueError` where one stands twice or without reason."""
    found: dict[str, str] = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["expected"]:
        reason = entry["reason"].strip()
        if kind not in entry["servers"] or version not in entry["versions"]:
            continue
        for check in entry["checks"]:
            if check in found or not reason:
                raise ValueError(f"{path.name}: {check} stands twice, or without a reason")
            found[check] = reason
    return found


def outcome_of(folder: Path, kind: Kind) -> Outcome:
    """What a run of the suite wrote into its folder; of the real server only what asks for nothing by name."""
    passed = 0
    failed: dict[str, str] = {}
    for file in sorted(folder.glob("*/checks.json")):
        # The folder is `server-<scenario>-<time>`, and the time has five dashes of its own.
        scenario = file.parent.name.removeprefix("server-").rsplit("-", 6)[0]
        if kind == "real" and scenario not in FIXTURE_FREE:
            continue
        for check in json.loads(file.read_text(encoding="utf-8")):
            passed += check["status"] == "SUCCESS"
            if check["status"] == FAILED:
                failed[f"{scenario}/{check['id']}"] = check.get("errorMessage") or check["description"]
    return Outcome(passed, failed)


def verdict(outcome: Outcome, allowed: dict[str, str]) -> list[str]:
    """A sentence for each failure that is not expected, and for each expected one that passes."""
    unexpected = [
        f"{check} failed: {outcome.failed[check]}" for check in sorted(outcome.failed.keys() - allowed.keys())
    ]
    stale = [f"{check} passes, and is expected to fail" for check in sorted(allowed.keys() - outcome.failed.keys())]
    empty = [] if outcome.passed else ["no check passed at all"]
    return [*unexpected, *stale, *empty]


def look(box: NodeBox) -> Iterator[Seen]:
    """Run the suite in both eras against both servers."""
    package = box.install(PACKAGE)
    for kind, command in SERVERS.items():
        with serving(command(box.data), box.data / f"{kind}.stderr") as url:
            for version in VERSIONS:
                results = box.folder / "conformance" / f"{kind}-{version}-{time.monotonic_ns()}"
                words = ["server", "--url", url, "--suite", "all", "--spec-version", version, "-o", str(results)]
                box.run([box.program("conformance"), *words])
                outcome, allowed = outcome_of(results, kind), expected(kind, version)
                wrong = verdict(outcome, allowed)
                said = f"{outcome.passed} checks passed, {len(outcome.failed)} failed, {len(allowed)} expected to fail"
                yield Seen(
                    "conformance suite", package, f"{kind} server, {version}", not wrong, "; ".join([said, *wrong])
                )

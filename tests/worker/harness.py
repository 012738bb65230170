"""Long-lived helper processes of the tests of the worker: one JSON job a line, one JSON answer a line."""

import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernelgate.tools.worker import frames
from kernelgate.tools.worker.sealed import Sealed

Ask = Callable[[dict[str, Any]], Any]


@contextmanager
def asking(script: Path) -> Iterator[Ask]:
    """Start a script that imported torch once and forks for each job; yields what asks it."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sink, source = process.stdin, process.stdout

        def ask(job: dict[str, Any]) -> Any:
            sink.write(json.dumps(job) + "\n")
            sink.flush()
            return json.loads(source.readline())

        yield ask
        sink.close()
        process.wait(timeout=60)


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a child that ends with it; returns the child's process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001  nothing may escape into the parent's stack
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def heard(control: socket.socket) -> dict[str, Any] | None:
    """A conductor's next frame, with what it sealed beside it put in; None at the end."""
    received = frames.receive(control)
    if received is None:
        return None
    message: dict[str, Any] = dict(received[0])
    for descriptor in received[1]:
        with Sealed(descriptor) as sealed:
            told = sealed.read()
        message |= {"error": told["fault"]} if message["op"] == "failed" else {"facts": told["facts"]}
    return message

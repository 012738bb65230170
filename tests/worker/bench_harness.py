"""A small supervisor for the tests of the bench: forks candidate and referee, stops and continues, never runs an op.

Reads one JSON object a line: {"task", "files", "threads", "steps": [[method, arguments…], …]}; answers one line each:
{"results": […], "exit": status of the candidate or null while it lived, "times": seconds per step}.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from harness import fork, heard

from kernelgate.tasks.model import Task
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import candidate, frames, processes, reference
from kernelgate.tools.worker.bench import House, RefereeBench
from kernelgate.tools.worker.conversation import Conversation
from kernelgate.tools.worker.lending import MemfdLender
from kernelgate.tools.worker.referee import SocketControl, serve
from kernelgate.tools.worker.sealed import Sealed
from kernelgate.tools.worker.timing import apply_policy

CAP_S = 60


def as_json(value):
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    return {"type": type(value).__name__, **value.model_dump(mode="json")} if value is not None else None


def run_steps(bench, steps):
    results, times = [], []
    for name, *arguments in steps:
        keywords = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        start = time.perf_counter()
        results.append(as_json(getattr(bench, name)(*arguments, **keywords)))
        times.append(time.perf_counter() - start)
    return {"results": results, "times": times}


def referee(control, conn, job):
    task = Task.model_validate_json(json.dumps(job["task"]))
    device = DeviceRef(kind="cpu", threads=job.get("threads", 1))
    apply_policy(task.precision, device.threads)
    start = time.perf_counter()
    house = House(reference.hold(task, "cpu", "cpu"))
    held_s = time.perf_counter() - start
    bench = RefereeBench(task, device, house, MemfdLender(), SocketControl(control, 1), Conversation(conn))
    try:
        outcome = run_steps(bench, job["steps"])
    finally:
        bench.close()
    return {**outcome, "held_s": held_s, "house_s": house.house_s}


def busy(pid):
    return [processes.busy_ns(pid, own=True), processes.main_thread_ns(pid)]


def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def request_of(job, procedure, number):
    return {
        "op": "call", "request_id": number, "procedure": procedure, "task": job["task"], "files": job["files"],
        "digest": "d", "plan": {}, "device": DeviceRef(kind="cpu").model_dump(mode="json"), "lease": True,
        "cap_s": CAP_S, "state_dir": "/",
    }  # fmt: skip


def conduct_calls(job, folder):
    """One referee serves several calls, each with a candidate of its own, as under a supervisor."""
    control, far_control = socket.socketpair()
    start = prepared_start(job, folder)
    referees = []

    def as_referee():
        control.close()
        signal.alarm(CAP_S)
        serve(far_control)

    referees.append(fork(as_referee))
    far_control.close()
    with Sealed.seal_json(request_of(job, "check", 0)) as sealed:
        frames.send(control, {"op": "ready", "request_id": 0}, [sealed.fileno()])
    ready = frames.receive_plain(control)
    replies, stages = [], []
    for number, procedure in enumerate(job["serve"], start=1):
        conn, far_conn = socket.socketpair()

        def as_candidate(far_conn=far_conn, conn=conn):
            control.close(), conn.close()
            os.dup2(2, 1)
            signal.alarm(CAP_S)
            candidate.serve(far_conn, start)

        began = time.perf_counter()
        child = fork(as_candidate)
        far_conn.close()
        request = request_of(job, procedure, number)
        descriptors = [] if procedure == "qualify" else [conn.fileno()]
        with Sealed.seal_json(request) as sealed:
            frames.send(control, {"op": "call", "request_id": number}, [sealed.fileno(), *descriptors])
        replies.append({**obey(control, child, number, stages), "wall_s": time.perf_counter() - began})
        conn.close()
        os.waitpid(child, 0)
    control.close()
    os.waitpid(referees[0], 0)
    return {"ready": ready, "replies": replies, "stages": stages}


def obey(control, child, number, stages):
    """Stop and continue the candidate as asked, until the call is over."""
    while (message := heard(control)) is not None:
        if message["op"] == "stop":
            stopped(child)
            frames.send(control, {"op": "stopped", "request_id": number, "busy_ns": busy(child)})
        elif message["op"] == "cont":
            os.kill(child, signal.SIGCONT)
            frames.send(control, {"op": "continued", "request_id": number})
        elif message["op"] == "progress":
            stages.append(message["stage"])
        else:
            return message
    return {"op": "lost"}


def prepared_start(job, folder):
    files = Path(folder) / "candidate"
    files.mkdir()
    for name, text in job["files"].items():
        (files / name).write_text(text)
    return {
        "files": list(job["files"]), "scratch": folder, "cache": folder, "mode": "run", "task_name": "t",
        "device": DeviceRef(kind="cpu").model_dump(mode="json"), "language": job.get("language", "torch"),
    }  # fmt: skip


def conduct(job, folder):
    start = prepared_start(job, folder)
    control, far_control = socket.socketpair()
    conn, far_conn = socket.socketpair()

    def as_candidate():
        control.close(), far_control.close(), conn.close()
        os.dup2(2, 1)
        signal.alarm(CAP_S)
        candidate.serve(far_conn, start)

    def as_referee():
        control.close(), far_conn.close()
        signal.alarm(CAP_S)
        frames.send(far_control, {"op": "done", **referee(far_control, conn, job)})

    began = time.perf_counter()
    child = fork(as_candidate)
    trusted = fork(as_referee)
    far_control.close(), far_conn.close(), conn.close()
    outcome = obey(control, child, 1, [])
    control.close()
    outcome["wall_s"] = time.perf_counter() - began
    os.waitpid(trusted, 0)
    os.kill(child, signal.SIGCONT)
    # An honest one leaves by itself at the end of its stream; whoever does not within the cap is ended by its alarm.
    outcome["exit"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return outcome


def conduct_any(job, folder):
    return conduct_calls(job, folder) if "serve" in job else conduct(job, folder)


def main():
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(json.dumps(conduct_any(json.loads(line), folder)) + "\n")
            sys.stdout.flush()


main()

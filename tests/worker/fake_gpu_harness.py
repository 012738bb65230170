"""Forks a referee and candidates that take the CPU for a GPU; one JSON job a line, as `bench_harness.py`.

{"task", "files", "serve": [[procedure, plan], …]}; the answer is {"ready", "replies", "left", "stops"}: how many loans
outlived their calls, and which calls, from 1, had the candidate stopped, once for each time.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import time

import fake_gpu
from harness import fork, heard

from kernelgate.tools.kit import catalogue
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import candidate, frames
from kernelgate.tools.worker.processes import state
from kernelgate.tools.worker.referee import serve
from kernelgate.tools.worker.sealed import Sealed

CAP_S = 60
GPU = DeviceRef(kind="cuda", uid="GPU-fake").model_dump(mode="json")


def bounded(work):
    """What a child runs: its print goes to the log, and it ends with its time."""
    os.dup2(2, 1)
    signal.alarm(CAP_S)
    work()


def request_of(job, procedure, plan, number):
    return {
        "op": "call", "request_id": number, "procedure": procedure, "task": job["task"], "files": job["files"],
        "digest": "d", "plan": plan, "device": GPU, "lease": True, "cap_s": CAP_S, "state_dir": "/",
    }  # fmt: skip


def answer_of(control, child, stops):
    """The referee's answer; until it comes the candidate is stopped and let run as the referee asks."""
    while (message := heard(control)) is not None:
        if message["op"] == "stop":
            stops.append(message["request_id"])
            os.kill(child, signal.SIGSTOP)
            while state(child) not in "TZ":
                time.sleep(0.0001)
        elif message["op"] == "cont":
            os.kill(child, signal.SIGCONT)
        elif message["op"] != "progress":
            return message
        if message["op"] != "progress":
            word = "stopped" if message["op"] == "stop" else "continued"
            frames.send(control, {"op": word, "request_id": message["request_id"]})
    return None


def conduct(job, folder):
    files = os.path.join(folder, "candidate")
    os.mkdir(files)
    for name, text in job["files"].items():
        with open(os.path.join(files, name), "w") as file:
            file.write(text)
    start = {"scratch": folder, "mode": "run", "device": GPU, "language": "torch"}
    control, far_control = socket.socketpair()

    def as_referee():
        control.close()
        serve(far_control)

    trusted = fork(lambda: bounded(as_referee))
    far_control.close()
    with Sealed.seal_json(request_of(job, "check", {}, 0)) as sealed:
        frames.send(control, {"op": "ready", "request_id": 0}, [sealed.fileno()])
    ready = frames.receive_plain(control)
    replies, stops = [], []
    for number, (procedure, plan) in enumerate(job["serve"], start=1):
        conn, far_conn = socket.socketpair()

        def as_candidate(conn=conn, far_conn=far_conn):
            control.close(), conn.close()
            candidate.serve(far_conn, start)

        child = fork(lambda: bounded(as_candidate))
        far_conn.close()
        descriptors = [] if procedure == "qualify" else [conn.fileno()]
        with Sealed.seal_json(request_of(job, procedure, plan, number)) as sealed:
            frames.send(control, {"op": "call", "request_id": number}, [sealed.fileno(), *descriptors])
        message = answer_of(control, child, stops)
        replies.append(message)
        conn.close()
        os.waitpid(child, 0)
    fake_gpu.end_busy()
    left = len(os.listdir(fake_gpu.FakeDriver.folder))
    control.close()
    os.waitpid(trusted, 0)
    return {"ready": ready, "replies": replies, "left": left, "stops": stops}


def main():
    catalogue.find_tools()
    with tempfile.TemporaryDirectory() as lent:
        fake_gpu.install(lent)
        for line in sys.stdin:
            with tempfile.TemporaryDirectory() as folder:
                sys.stdout.write(json.dumps(conduct(json.loads(line), folder)) + "\n")
                sys.stdout.flush()


main()

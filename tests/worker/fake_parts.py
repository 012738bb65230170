"""Parts of a supervisor without torch: the candidate's functions are called by name, as the plan of the request says.

`plan["ask"]` names functions of `candidate.py` that the referee calls in order; `plan["referee"]` has the referee
itself misbehave. The facts are the list of what came back.
"""

import json
import os
import runpy
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import frames
from kernelgate.tools.worker.parts import Versions
from kernelgate.tools.worker.sealed import Sealed, send_answer


def preload(device: DeviceRef, shared_cache: Path) -> Versions:
    if os.environ.get("PATH", "").endswith(":/second-thread") and "--resumed" not in sys.argv:
        # A library that starts a thread behind the supervisor's back, at the first fork after the imports.
        os.register_at_fork(after_in_parent=_start_thread_once())
    return Versions(torch="", triton="")


def _start_thread_once() -> Any:
    started: list[threading.Thread] = []

    def start() -> None:
        if not started:
            started.append(threading.Thread(target=threading.Event().wait, daemon=True))
            started[0].start()

    return start


def candidate_serve(conn: socket.socket, start: dict[str, Any]) -> None:
    module = runpy.run_path("candidate/candidate.py", init_globals={"conn": conn, "start": start})
    while (received := frames.receive(conn)) is not None:
        try:
            answer = module[str(received[0]["call"])]()
        except Exception as error:  # noqa: BLE001  whatever the test function raised is the answer
            answer = f"{type(error).__name__}: {error}"
        frames.send(conn, {"answer": answer})


def candidate_warm() -> None:
    if Path("candidate/cold.py").exists():
        raise RuntimeError("no device")
    Path("warmed").touch()


def warms_up(device: DeviceRef) -> bool:
    return os.environ.get("PATH", "").endswith(":/warms-up")


def referee_serve(control: socket.socket) -> None:
    house = 0
    while (received := frames.receive(control)) is not None:
        message, descriptors = received
        request_id = message["request_id"]
        with Sealed(descriptors.pop(0)) as sealed:
            request: Any = sealed.read()
        if message["op"] == "ready":
            if "unready" in json.dumps(request["task"]):
                send_answer(control, {"op": "failed", "request_id": request_id, "error": "the task is unready"})
                continue
            house += 1
            crowded = bool(request["plan"].get("lacks_room"))
            frames.send(control, {"op": "ready", "request_id": request_id, "crowded": crowded})
        elif message["op"] == "call":
            if request["plan"].get("crowd"):
                _leave_a_child()
            conn = socket.socket(fileno=descriptors[0]) if descriptors else None
            _conduct(control, request, conn, {"calls": house, "pid": os.getpid()})


def builder_serve(control: socket.socket, sealed: Sealed, candidate: socket.socket) -> None:
    _conduct(control, sealed.read(), candidate, {})


def _leave_a_child() -> None:
    if os.fork() == 0:
        signal.pause()


def _conduct(control: socket.socket, request: Any, conn: socket.socket | None, observation: Any) -> None:
    request_id, plan = request["request_id"], request["plan"]
    frames.send(control, {"op": "progress", "request_id": request_id, "stage": "begun", "done": 0, "total": 1})
    misbehave = plan.get("referee")
    if misbehave == "dies":
        os._exit(3)
    if misbehave == "hangs":
        threading.Event().wait()
    if misbehave == "fails":
        why = f"no memory on our side for {request['task']['workloads']}"
        send_answer(control, {"op": "failed", "request_id": request_id, "error": why})
        return
    if misbehave == "answers late":
        send_answer(control, {"op": "done", "request_id": request_id - 1, "facts": "late"})
    facts: list[Any] = [request["task"]["workloads"]] if plan.get("tells") else []
    for name in plan.get("ask", []):
        if name == "STOP" or name == "CONT":
            op = "stop" if name == "STOP" else "cont"
            frames.send(control, {"op": op, "request_id": request_id})
            answer = frames.receive(control)
            facts.append(answer[0]["op"] if answer else None)
            continue
        assert conn is not None
        facts.append(_ask(conn, name))
    if conn is not None:
        conn.close()
    if plan.get("mib"):
        facts = ["x" * ((plan["mib"] << 20) - 100_000), "€" * 30_000]
    done = {"op": "done", "request_id": request_id, "facts": facts, "house_s": 0.0, "prepare_s": 0.25}
    send_answer(control, {**done, "observation": observation})


def _ask(conn: socket.socket, name: str) -> Any:
    try:
        frames.send(conn, {"call": name})
        received = frames.receive(conn)
    except (frames.BrokenFrame, OSError) as error:
        return {"broken": type(error).__name__}
    return {"gone": True} if received is None else received[0].get("answer")

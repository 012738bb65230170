"""Frames with memory files beside them, at the server's end of the socket to a supervisor. Never blocks its loop."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

from kernelgate.tools.kit.wire import KeptLog, Returned, WorkerReply
from kernelgate.tools.worker import frames
from kernelgate.tools.worker.capture import text_of
from kernelgate.tools.worker.sealed import Sealed


async def send(sock: socket.socket, data: bytes, sealed: Sealed) -> int:
    """Send the beginning of a frame, and the descriptor with its first byte; how many bytes went."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return socket.send_fds(sock, [data], [sealed.fileno()])
        except BlockingIOError:
            await _ready(sock, loop.add_writer, loop.remove_writer)


async def receive(sock: socket.socket, size: int, arrived: deque[int]) -> bytes:
    """The next bytes, none at the end of the stream; descriptors that come with them are put behind the others."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(sock, size, frames.MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            await _ready(sock, loop.add_reader, loop.remove_reader)
        else:
            arrived.extend(descriptors)
            return data


def opened(returned: Returned, arrived: deque[int]) -> tuple[WorkerReply, str]:
    """A reply with what came beside it, and what our own side had printed. Raises `BrokenFrame` where less came."""
    awaited = sum((returned.answered, returned.log is not None, returned.house_log is not None))
    if len(arrived) < awaited:
        raise frames.BrokenFrame(f"{len(arrived)} descriptors of {awaited}")
    reply = returned.reply
    facts, fault = _answer(arrived.popleft()) if returned.answered else (reply.facts, "")
    log = "" if returned.log is None else _text(returned.log, arrived.popleft())
    printed = "" if returned.house_log is None else _text(returned.house_log, arrived.popleft()).strip()
    told = {
        "facts": facts,
        "fault": " ".join(part for part in (reply.fault, fault) if part),
        "log": log,
        "log_dropped_bytes": 0 if returned.log is None else returned.log.dropped_bytes,
    }
    return reply.model_copy(update=told), printed


def close_all(arrived: deque[int]) -> None:
    """Nobody takes them any more."""
    while arrived:
        os.close(arrived.popleft())


def _answer(descriptor: int) -> tuple[object, str]:
    with Sealed(descriptor) as sealed:
        try:
            told = sealed.read()
        except (OSError, frames.BrokenFrame) as error:
            return None, f"The conductor's answer was malformed: {error}."
    return told.get("facts"), str(told.get("fault", ""))


def _text(kept: KeptLog, descriptor: int) -> str:
    try:
        return text_of(kept, descriptor)
    finally:
        os.close(descriptor)


async def _ready(
    sock: socket.socket,
    add: Callable[[socket.socket, Callable[[], None]], None],
    remove: Callable[[socket.socket], object],
) -> None:
    ready = asyncio.Event()
    add(sock, ready.set)
    try:
        await ready.wait()
    finally:
        remove(sock)

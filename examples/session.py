"""What both examples share: a server of their own, and calls that wait."""

import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError

import anyio
from mcp import Client, StdioServerParameters

T = TypeVar("T")
COME_AGAIN = (429, 503)
TRIES = 6
USUAL_WAIT_S, LONGEST_WAIT_S = 5.0, 60.0


class Stop(Exception):
    """Why it cannot go on: one sentence."""


def parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before `--`, which are the example's, and those behind it, which are `kernelgate serve`'s."""
    at = words.index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


def patiently(ask: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """What a server says that may answer "come again" (429, 503): waits as long as it asks for, some times."""
    for _ in range(TRIES - 1):
        try:
            return ask()
        except HTTPError as error:
            if error.code not in COME_AGAIN:
                raise
            sleep(wait_s(error.headers.get("Retry-After")))
    return ask()


def wait_s(said: str | None) -> float:
    """Seconds of a Retry-After header; what is none, a date for one, is the usual wait."""
    return min(float(said), LONGEST_WAIT_S) if said and said.isascii() and said.isdigit() else USUAL_WAIT_S


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structure of a tool's reply; waits where it hands back a job. Raises `Stop` with the text of an error."""
    result = await client.call_tool(tool, arguments)
    if result.is_error or result.structured_content is None:
        raise Stop(" ".join(part.text for part in result.content if part.type == "text"))
    reply: dict[str, Any] = result.structured_content
    while reply["status"] == "running":
        job = (await call(client, "job", job_id=reply["job_id"]))["job"]
        if "reply" not in job and job["state"] not in ("queued", "running"):
            raise Stop(f"{tool}: its job {job['job_id']} is {job['state']}")
        reply = job.get("reply", reply)
    return reply


def play(agent: Callable[[Client], Awaitable[None]], serve: Sequence[str]) -> None:
    """Start a server beside this Python, let the agent play, and end the program: with a sentence where it stopped."""

    async def playing() -> str:
        program = str(Path(sys.executable).parent / "kernelgate")
        async with Client(
            StdioServerParameters(command=program, args=["serve", *serve], env=dict(os.environ))
        ) as client:
            try:
                await agent(client)
            except Stop as stop:  # caught in here: outside it would come wrapped in the client's task groups
                return str(stop)
        return ""

    sys.exit(anyio.run(playing) or 0)

"""Tool calls of our own clients: the structure of a reply, waited for where it became a job."""

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp import Client
from mcp.shared.dispatcher import ProgressFnT
from mcp.types import CallToolResult, TextContent

from kernelgate.server.trouble import Trouble

MOST_WAITS: Final = 15
"""Calls of `job` for one piece of work, 40 s each by default: no rung may run for so long."""


def structure_of(result: CallToolResult) -> dict[str, Any]:
    """The structure of a reply; raises `Trouble` with the text of an error."""
    if result.is_error:
        raise Trouble("".join(part.text for part in result.content if isinstance(part, TextContent)))
    return cast("dict[str, Any]", result.structured_content)


async def answer_of(
    client: Client, tool: str, arguments: Mapping[str, Any], on_progress: ProgressFnT | None = None
) -> dict[str, Any]:
    """Call a tool, wait out its job, and return the structure; raises `Trouble` with the text of an error."""
    reply = structure_of(await client.call_tool(tool, dict(arguments), progress_callback=on_progress))
    for _ in range(MOST_WAITS):
        if reply["status"] != "running":
            return reply
        waiting = {"job_id": reply["job_id"]}
        job = structure_of(await client.call_tool("job", waiting, progress_callback=on_progress))["job"]
        if "reply" not in job and job["state"] not in ("queued", "running"):
            raise Trouble(f"{tool} was not finished: its job {job['job_id']} is {job['state']}")
        reply = job.get("reply", reply)
    if reply["status"] != "running":
        return reply
    raise Trouble(f"{tool} does not end: its job {reply['job_id']} was waited for {MOST_WAITS} times")

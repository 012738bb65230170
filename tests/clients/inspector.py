"""MCP Inspector's command line, an independent client in TypeScript, over stdio: it lists the tools and calls them."""

import json
from collections.abc import Iterator
from typing import Any, Final

from node_box import Done, NodeBox, Seen

from kernelgate.tools.kit.catalogue import find_tools

PACKAGE: Final = "@modelcontextprotocol/inspector"
COUNT: Final = len(find_tools())
TOOL_FAILED: Final = 5
"""Its exit status where a tool answered with an error."""


def look(box: NodeBox) -> Iterator[Seen]:
    """List, call, and call wrongly."""
    version = box.install(PACKAGE)

    def ask(*words: str) -> Done:
        server = box.kernelgate("serve", *box.served())
        return box.run([box.program("mcp-inspector"), "--cli", *server, *words, "--format", "json"])

    def seen(step: str, words: str, *, ok: bool) -> Seen:
        return Seen("MCP Inspector CLI", version, step, ok, words)

    listed = ask("--method", "tools/list")
    names = [tool["name"] for tool in result_of(listed).get("tools", [])]
    yield seen("tools/list", f"{len(names)} tools", ok=names == [tool.name for tool in find_tools()])
    for tool, argument in (("list_tasks", "query=soft"), ("get_task", "task=softmax"), ("start_run", "task=softmax")):
        called = ask("--method", "tools/call", "--tool-name", tool, "--tool-arg", argument)
        structure = result_of(called).get("structuredContent", {})
        ok = called.status == 0 and structure.get("status") == "ok"
        yield seen(f"tools/call {tool}", structure.get("summary", called.text), ok=ok)
    uris = [resource["uri"] for resource in result_of(ask("--method", "resources/list")).get("resources", [])]
    yield seen("resources/list", f"{len(uris)} resources", ok="kernelgate://runs" in uris)
    read = result_of(ask("--method", "resources/read", "--uri", "kernelgate://tasks/softmax")).get("contents", [])
    yield seen(
        "resources/read kernelgate://tasks/softmax", f"{len(read)} text", ok=len(read) == 1 and bool(read[0]["text"])
    )
    prompts = [prompt["name"] for prompt in result_of(ask("--method", "prompts/list")).get("prompts", [])]
    yield seen("prompts/list", ", ".join(prompts), ok=prompts == ["audit", "optimise"])
    wrong = ask("--method", "tools/call", "--tool-name", "get_task", "--tool-arg", "tsak=softmax")
    ok = wrong.status == TOOL_FAILED and "did you mean 'task'" in wrong.text
    yield seen("tools/call with a misspelt argument", f"status {wrong.status}, the sentence that says so", ok=ok)


def result_of(done: Done) -> dict[str, Any]:
    """The result in its output; empty where there is none."""
    try:
        result: dict[str, Any] = json.loads(done.stdout)["result"]
    except (json.JSONDecodeError, KeyError):
        return {}
    return result

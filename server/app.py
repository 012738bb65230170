"""The MCP face: the list of tools, one handler that all calls pass through, and what is wired beside them."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import mcp.types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from pydantic import ValidationError

from kernelgate.server import prompts, replies, resources
from kernelgate.server.book import ServerBook
from kernelgate.server.caller import account_of, client_of
from kernelgate.server.changes import Changes
from kernelgate.server.completion import on_completion
from kernelgate.server.gate import Gate
from kernelgate.server.installed import package_version
from kernelgate.server.open_calls import LEAVING
from kernelgate.server.services import Services
from kernelgate.server.told import told
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.book import ToolMistake
from kernelgate.tools.kit.catalogue import AnyTool, find_tools
from kernelgate.tools.kit.envelope import reply_model
from kernelgate.tools.kit.spec import BookTool, MeasuringTool

INSTRUCTIONS: Final = (
    "Optimise a GPU kernel under a budget. Loop: list_tasks -> get_task -> start_run -> compile (returns "
    "candidate_id; up_to='quick_time' climbs several rungs in one call) -> check_correctness -> quick_time -> "
    "precise_time -> profile the best -> compile the next candidate with parent_id and a note saying what you changed "
    "and why. Each reply lists next_steps with prices and whether they are allowed; a refusal names the missing "
    "evidence. A reply with status running has a job_id: call job. "
    "Cheap rungs first: precise_time is only for candidates that quick_time ranked well. Answers come from secret "
    "inputs and hidden shapes, so write for all of them. The same source is answered from the book for free. Stop when "
    "stop_advice says so or the budget is spent; the best candidate is first in list_candidates, and its "
    "order='parents' names what to mutate next."
)


@dataclass(frozen=True)
class Face:
    """What the server publishes: tools by name, and their listing."""

    tools: Mapping[str, AnyTool]
    listing: tuple[types.Tool, ...]


def face() -> Face:
    """All tools, in order of name."""
    found = find_tools()
    return Face(tools={tool.name: tool for tool in found}, listing=tuple(_listed(tool) for tool in found))


def _listed(tool: AnyTool) -> types.Tool:
    read_only = isinstance(tool, BookTool) and tool.read_only
    output: type[Frozen] = reply_model(tool.report) if isinstance(tool, MeasuringTool) else tool.report
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=replies.input_schema(tool.args),
        output_schema=replies.output_schema(output),
        annotations=types.ToolAnnotations(
            read_only_hint=read_only,
            destructive_hint=False,
            # Asked again, a rung is answered from the book, and a run from its idempotency key.
            idempotent_hint=read_only or isinstance(tool, MeasuringTool),
            open_world_hint=False,
        ),
    )


OpenServices = Callable[[], AbstractAsyncContextManager[Services]]


class AgentServer(Server[Services]):
    """The SDK's server, which says of itself what it really serves."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """As the SDK derives them, but for changes of lists: that of resources is told, the others never change."""
        derived = super().get_capabilities(
            notification_options, experimental_capabilities, extensions, protocol_version=protocol_version
        )
        return derived.model_copy(
            update={
                "tools": types.ToolsCapability(list_changed=False),
                "prompts": types.PromptsCapability(list_changed=False),
                "resources": types.ResourcesCapability(subscribe=True, list_changed=True),
            }
        )


def build(open_services: OpenServices) -> Server[Services]:
    """The server; `open_services` opens ledger and workshop while it runs."""
    shown = face()
    changes = Changes()

    @asynccontextmanager
    async def lifespan(_: Server[Services]) -> AsyncGenerator[Services]:
        async with open_services() as services, changes.watched(services):
            yield services

    async def on_list_tools(
        ctx: ServerRequestContext[Services], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(shown.listing))

    async def on_call_tool(
        ctx: ServerRequestContext[Services], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return await answer(shown, ctx, params)

    server = AgentServer(
        "kernelgate",
        version=package_version("kernelgate"),
        title="kernelgate",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
        on_list_resources=resources.on_list_resources,
        on_list_resource_templates=resources.on_list_templates,
        on_read_resource=resources.on_read_resource,
        on_subscribe_resource=changes.on_subscribe,
        on_unsubscribe_resource=changes.on_unsubscribe,
        on_subscriptions_listen=changes.on_listen,
        on_list_prompts=prompts.on_list_prompts,
        on_get_prompt=prompts.on_get_prompt,
        on_completion=on_completion,
    )
    server.add_notification_handler("notifications/initialized", types.NotificationParams, changes.on_initialized)
    return server


async def answer(
    shown: Face, ctx: ServerRequestContext[Services], params: types.CallToolRequestParams
) -> types.CallToolResult:
    """One call: every outcome becomes a result; no exception's text reaches the client but those meant for it."""
    tool = shown.tools.get(params.name)
    if tool is None:
        return replies.mistake(replies.unknown_tool(params.name, list(shown.tools)))
    try:
        with ctx.lifespan_context.calls.one():
            return replies.result_of(await _serve(tool, parsed(tool, params.arguments), ctx))
        return replies.mistake(LEAVING)  # its scope was cancelled
    except Exception as error:  # noqa: BLE001 -- it is logged by `told`, and no text of it may go on from here
        return replies.mistake(told(error, f"call of {tool.name}").sentence)


def parsed(tool: AnyTool, arguments: Mapping[str, Any] | None) -> Frozen:
    """The arguments of a call; raises `ToolMistake`. Through JSON, since strict models take no lists for tuples."""
    try:
        text = json.dumps(arguments or {}, allow_nan=False)
    except ValueError:
        raise ToolMistake(f"{tool.name}: an argument is NaN or infinite; send finite numbers.") from None
    except RecursionError:
        raise ToolMistake(f"{tool.name}: the arguments are nested too deeply.") from None
    try:
        args: Frozen = tool.args.model_validate_json(text)
    except ValidationError as error:
        raise ToolMistake(replies.argument_mistakes(tool.name, tool.args, error)) from None
    return args


async def _serve(tool: AnyTool, args: Frozen, ctx: ServerRequestContext[Services]) -> Frozen | dict[str, Any]:
    services = ctx.lifespan_context
    if not isinstance(tool, MeasuringTool):
        report: Frozen = await tool.answer(ServerBook(services, account_of(ctx), client_of(ctx)), args)
        return report

    steps = 0

    async def on_progress(stage: str, done: int, total: int) -> None:
        # The protocol wants progress that increases; the rungs' own counts start anew at each stage.
        nonlocal steps
        steps += 1
        of = f" {done}/{total}" if total else ""
        await ctx.session.report_progress(steps, None, f"{tool.name}: {stage}{of}")

    return await Gate(services, account_of(ctx)).call(tool, args, on_progress)

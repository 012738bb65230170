"""What the conformance suite asks for by name, laid over the real server: its tools, resources and prompts.

Text and errors go through the server's own handler (`app.answer`); pictures, sounds and embedded resources have no
tool of ours, so the handlers here answer them. Whatever has another name goes on to the real server.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import mcp.types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from kernelgate.server.app import Face, answer
from kernelgate.server.services import Services
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.book import Book
from kernelgate.tools.kit.envelope import Answer
from kernelgate.tools.kit.spec import BookTool

Context = ServerRequestContext[Services]
WATCHED: Final = "test://watched-resource"
FOLLOWED: Final = "kernelgate://runs"
"""A resource of ours stands for the one that the suite subscribes to: so it is our own subscription that is judged."""
DOT_PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE_WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
STEPS_PERCENT: Final = (0, 50, 100)

KEPT_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""The words of JSON Schema 2020-12 that the suite wants to see again in `tools/list`."""


class NoArguments(Frozen):
    """None."""


async def _says_a_line(book: Book, args: NoArguments) -> Answer:
    return Answer(summary="This is a simple text response for testing.", ledger_head=await book.head())


async def _fails(book: Book, args: NoArguments) -> Answer:
    raise RuntimeError("this tool fails on purpose")


OWN: Final[dict[str, BookTool[NoArguments, Answer]]] = {
    name: BookTool(
        name=name, title=name, description="A tool of the conformance suite.", args=NoArguments, report=Answer,
        read_only=True, answer=answering,
    )
    for name, answering in (("test_simple_text", _says_a_line), ("test_error_handling", _fails))
}  # fmt: skip
"""Answered by the server's own handler."""


def _picture() -> types.ImageContent:
    return types.ImageContent(type="image", data=DOT_PNG, mime_type="image/png")


def _embedded(uri: str, text: str, mime_type: str = "text/plain") -> types.EmbeddedResource:
    resource = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=resource)


def _line(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


MEDIA: Final[dict[str, list[types.ContentBlock]]] = {
    "test_image_content": [_picture()],
    "test_audio_content": [types.AudioContent(type="audio", data=SILENCE_WAV, mime_type="audio/wav")],
    "test_embedded_resource": [_embedded("test://embedded-resource", "This is an embedded resource content.")],
    "test_multiple_content_types": [
        _line("Multiple content types test:"),
        _picture(),
        _embedded("test://mixed-content-resource", '{"test": "data", "value": 123}', "application/json"),
    ],
    "test_tool_with_progress": [_line("done")],
    "json_schema_2020_12_tool": [_line("a schema to list")],
}
"""Tool → what it answers."""
RESOURCES: Final[dict[str, types.TextResourceContents | types.BlobResourceContents]] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=DOT_PNG),
}
PROMPTS: Final[dict[str, tuple[tuple[str, ...], Callable[[dict[str, str]], list[types.ContentBlock]]]]] = {
    "test_simple_prompt": ((), lambda _: [_line("This is a simple prompt for testing.")]),
    "test_prompt_with_arguments": (
        ("arg1", "arg2"),
        lambda given: [_line(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")],
    ),
    "test_prompt_with_embedded_resource": (
        ("resourceUri",),
        lambda given: [
            _embedded(given["resourceUri"], "Embedded resource content for testing."),
            _line("Please process the embedded resource above."),
        ],
    ),
    "test_prompt_with_image": ((), lambda _: [_picture(), _line("Please analyze the image above.")]),
}
"""Prompt → the names of its arguments, and its messages."""


def listing() -> list[types.Tool]:
    """The fixture tools as clients see them."""
    schemas = {"json_schema_2020_12_tool": KEPT_SCHEMA}
    nothing: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    return [
        types.Tool(name=name, description="A tool of the conformance suite.", input_schema=schemas.get(name, nothing))
        for name in (*OWN, *MEDIA)
    ]


def with_fixtures(server: Server[Services]) -> Server[Services]:
    """The same server, with the fixtures over its handlers."""
    _lay_over_tools(server)
    _lay_over_resources(server)
    _lay_over_prompts(server)
    return server


def _inner(server: Server[Services], method: str) -> Callable[[Context, Any], Awaitable[Any]]:
    """The server's own handler of a method."""
    entry = server.get_request_handler(method)
    assert entry is not None, method
    return entry.handler


def _lay_over_tools(server: Server[Services]) -> None:
    own_list, own_call = _inner(server, "tools/list"), _inner(server, "tools/call")
    fixtures = Face(tools=OWN, listing=())

    async def on_list(ctx: Context, params: types.PaginatedRequestParams) -> types.ListToolsResult:
        real = await own_list(ctx, params)
        return types.ListToolsResult(tools=[*real.tools, *listing()])

    async def on_call(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name in OWN:
            return await answer(fixtures, ctx, params)
        if params.name not in MEDIA:
            return await own_call(ctx, params)
        if params.name == "test_tool_with_progress":
            for percent in STEPS_PERCENT:
                await ctx.session.report_progress(percent, 100, f"{percent} %")
        return types.CallToolResult(content=MEDIA[params.name])

    server.add_request_handler("tools/list", types.PaginatedRequestParams, on_list)
    server.add_request_handler("tools/call", types.CallToolRequestParams, on_call)


def _lay_over_resources(server: Server[Services]) -> None:
    own_list, own_templates = _inner(server, "resources/list"), _inner(server, "resources/templates/list")
    own_read, own_subscribe = _inner(server, "resources/read"), _inner(server, "resources/subscribe")
    template = "test://template/{id}/data"

    async def on_list(ctx: Context, params: types.PaginatedRequestParams) -> types.ListResourcesResult:
        real = await own_list(ctx, params)
        return types.ListResourcesResult(
            resources=[*real.resources, *(types.Resource(uri=uri, name=uri) for uri in RESOURCES)]
        )

    async def on_templates(ctx: Context, params: types.PaginatedRequestParams) -> types.ListResourceTemplatesResult:
        real = await own_templates(ctx, params)
        ours = types.ResourceTemplate(uri_template=template, name="template", mime_type="application/json")
        return types.ListResourceTemplatesResult(resource_templates=[*real.resource_templates, ours])

    async def on_read(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        before, after = template.split("{id}")
        if uri in RESOURCES:
            return types.ReadResourceResult(contents=[RESOURCES[uri]])
        if uri.startswith(before) and uri.endswith(after):
            name = uri.removeprefix(before).removesuffix(after)
            text = json.dumps({"id": name, "templateTest": True, "data": f"Data for ID: {name}"})
            found = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
            return types.ReadResourceResult(contents=[found])
        return await own_read(ctx, params)

    async def on_subscribe(ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        followed = FOLLOWED if params.uri == WATCHED else params.uri
        return await own_subscribe(ctx, params.model_copy(update={"uri": followed}))

    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, on_subscribe)
    server.add_request_handler("resources/list", types.PaginatedRequestParams, on_list)
    server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, on_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, on_read)


def _lay_over_prompts(server: Server[Services]) -> None:
    own_list, own_get = _inner(server, "prompts/list"), _inner(server, "prompts/get")
    own_completion = _inner(server, "completion/complete")
    shown = [
        types.Prompt(
            name=name,
            description="A prompt of the conformance suite.",
            arguments=[types.PromptArgument(name=word, description="Any text.", required=True) for word in words],
        )
        for name, (words, _) in PROMPTS.items()
    ]

    async def on_list(ctx: Context, params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[*(await own_list(ctx, params)).prompts, *shown])

    async def on_get(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name not in PROMPTS:
            return await own_get(ctx, params)
        content = PROMPTS[params.name][1](params.arguments or {})
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=part) for part in content])

    async def on_completion(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        if not isinstance(params.ref, types.PromptReference) or params.ref.name not in PROMPTS:
            return await own_completion(ctx, params)
        return types.CompleteResult(completion=types.Completion(values=["paris", "park"], total=2, has_more=False))

    server.add_request_handler("prompts/list", types.PaginatedRequestParams, on_list)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, on_get)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, on_completion)

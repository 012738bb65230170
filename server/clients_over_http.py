"""What a client is told of a server over HTTP. It fills its token in from its environment: we never see it."""

import json
import shlex
from collections.abc import Callable
from typing import Any, Final

from kernelgate.server.merging import SERVER_NAME

TOKEN_VARIABLE: Final = "KERNELGATE_TOKEN"
"""Of the environment in which the client starts."""

Render = Callable[[str, bool], str]
"""(address of the server, whether a token is sent) → the client's file with our entry alone."""
Note = Callable[[str, bool], str]


def json_over_http(key: str, address: str = "url", token: str = "${%s}", **more: Any) -> Render:
    """How an entry of a JSON file is rendered: under which words, and how the client names a variable."""

    def render(url: str, with_token: bool) -> str:  # noqa: FBT001 -- of one signature with the other files
        header = {"headers": {"Authorization": f"Bearer {token % TOKEN_VARIABLE}"}} if with_token else {}
        entry = {address: url, **header, **more}
        return json.dumps({key: {SERVER_NAME: entry}}, indent=2, ensure_ascii=False) + "\n"

    return render


def toml_over_http(tool_timeout_s: int) -> Render:
    """Codex reads the variable itself."""

    def render(url: str, with_token: bool) -> str:  # noqa: FBT001 -- of one signature with the other files
        lines = [f"[mcp_servers.{SERVER_NAME}]", f"url = {json.dumps(url)}"]
        lines += [f'bearer_token_env_var = "{TOKEN_VARIABLE}"'] if with_token else []
        return "\n".join([*lines, f"tool_timeout_sec = {tool_timeout_s}"]) + "\n"

    return render


def note_over_http(then: str, by_hand: list[str] | None = None, header: str = "") -> Note:
    """What to do next; the client's own command for all projects, where it differs.

    Args:
        then: about this client.
        by_hand: its command up to the address.
        header: the flag with which that command takes the token.
    """

    def note(url: str, with_token: bool) -> str:  # noqa: FBT001 -- of one signature with the other files
        text = f"{_of_token(url, with_token)} {then}"
        if by_hand is None:
            return text
        # In double quotes, so that the shell fills the variable in: the client keeps the token then.
        sent = f' {header} "Authorization: Bearer ${TOKEN_VARIABLE}"' if with_token else ""
        return f"{text}\n  {shlex.join([*by_hand, SERVER_NAME, url])}{sent}"

    return note


def _of_token(url: str, with_token: bool) -> str:  # noqa: FBT001 -- private, of one call
    if with_token:
        made = f"`kernelgate tokens add ACCOUNT --url {url}`"
        return f"Start the client with {TOKEN_VARIABLE} set to the token that {made} has printed."
    return f"No token is sent: set {TOKEN_VARIABLE} and ask again where the server wants one."

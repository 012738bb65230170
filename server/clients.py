"""How a client is told about this server: the text of its configuration, and how to put it into the right file.

A client is one row of `CLIENTS`. Nothing of a file but our own entry is ever changed: what cannot be merged without
doubt is refused with a sentence.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernelgate.server.clients_over_http import Note, Render, json_over_http, note_over_http, toml_over_http
from kernelgate.server.gpus import VISIBLE
from kernelgate.server.merging import SERVER_NAME, CannotMerge, merge_json, merge_toml
from kernelgate.server.settings import resolved
from kernelgate.server.whole_files import replacing
from kernelgate.tasks.model import Frozen

TOOL_TIMEOUT_S: Final = 660
"""Above the longest wait that a call may ask for (600 s): a client that gives up earlier never sees the job id."""
STARTUP_TIMEOUT_S: Final = 60
"""The server answers within about 2 s; a cold disk or a busy host may take many times that."""
CARRIED: Final = (
    "KERNELGATE_HOME", "KERNELGATE_TASKS", "KERNELGATE_KERNELBENCH", "KERNELGATE_DEVICE", "KERNELGATE_CPU_THREADS",
    "KERNELGATE_CONFIG", "KERNELGATE_REQUIRE_CONFINEMENT",
    VISIBLE, "CUDA_HOME", "LD_LIBRARY_PATH",
)  # fmt: skip
"""Variables that the server needs and that some clients do not hand on to it."""
OUR_FOLDERS: Final = frozenset({"KERNELGATE_HOME", "KERNELGATE_TASKS", "KERNELGATE_KERNELBENCH", "KERNELGATE_CONFIG"})
"""Of these, those that hold a folder or a file; the second holds several."""


class ConfigError(Exception):
    """The configuration cannot be made or written: one sentence with what to do instead."""


class ClientConfig(Frozen):
    """What a client needs to know, and where it looks for it."""

    client: str
    """A key of `CLIENTS`."""
    path: Path
    """The file that the client reads."""
    text: str
    """The entry, as it stands alone in that file."""
    note: str
    """What to do next, and the client's own command for the same."""


Entry = tuple[Sequence[str], Mapping[str, str]]
"""Command and environment of the server."""


@dataclass(frozen=True)
class Client:
    """One client: where its file lies, what an entry looks like, how it is merged into a file that exists."""

    title: str
    locate: Callable[[Path, Path], Path]
    """(home, current folder) → the file."""
    render: Callable[[Sequence[str], Mapping[str, str]], str]
    """(command, environment) → the file with our entry alone."""
    merge: Callable[[str, str], str]
    """(text of the file, our text) → the file with our entry; raises `CannotMerge` with the reason why not."""
    note: Callable[[Sequence[str], Mapping[str, str]], str]
    over_http: tuple[Render, Note] | None = None
    """The same for a server over HTTP; None where its file takes none."""


def serve_command(arguments: Sequence[str] = ()) -> list[str]:
    """The command that starts this very installation: absolute, so that a client needs no environment for it.

    `-P` where the script is missing: a client starts us in the user's folder, whose modules are not ours.
    """
    here = Path(sys.executable).absolute()  # not resolved: a virtual environment's python is a link
    script = here.parent / SERVER_NAME
    program = [str(script)] if script.is_file() else [str(here), "-P", "-m", "kernelgate.server"]
    return [*program, "serve", *arguments]


def carried_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The set variables of `CARRIED`; our folders resolved, since a client starts us in a folder of its own.

    Of the empty ones only `CUDA_VISIBLE_DEVICES`: there it means no GPU.
    """
    carried = {name: environ[name] for name in CARRIED if environ.get(name) or (name == VISIBLE and name in environ)}
    for name in OUR_FOLDERS & carried.keys():
        carried[name] = os.pathsep.join(str(resolved(part)) for part in carried[name].split(os.pathsep) if part)
    return carried


def client_config(client: str, command: list[str], env: dict[str, str]) -> ClientConfig:
    """The configuration of one client. Pure but for the places of the home and the current folder.

    Raises:
        ConfigError: the client is not known.
    """
    chosen = _client(client)
    return ClientConfig(
        client=client,
        path=chosen.locate(Path.home(), Path.cwd()),
        text=chosen.render(command, env),
        note=chosen.note(command, env),
    )


def client_config_over_http(client: str, url: str, *, with_token: bool) -> ClientConfig:
    """The same for a server over HTTP at this address.

    Raises:
        ConfigError: the client is not known, or takes no such server.
    """
    chosen = _client(client)
    if chosen.over_http is None:
        raise ConfigError(
            f"{chosen.title} takes no server over HTTP from its file: leave --http out, it starts its own"
        )
    render, note = chosen.over_http
    return ClientConfig(
        client=client, path=chosen.locate(Path.home(), Path.cwd()), text=render(url, with_token),
        note=note(url, with_token),
    )  # fmt: skip


def shown(config: ClientConfig) -> str:
    """What `kernelgate config CLIENT` prints: where the entry goes, the entry, and what to do next."""
    return f"Put this into {config.path} (`--write` does it for you):\n\n{config.text}\n{config.note}"


def write_config(config: ClientConfig) -> str:
    """Put our entry into the client's file, keep everything else in it, and say what was done.

    The file is replaced in one step and keeps its permissions; a link stays a link.

    Raises:
        ConfigError: the file cannot be read, understood or written; it is unchanged then.
    """
    client = _client(config.client)
    path = config.path.resolve()
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = client.merge(before, config.text) if before.strip() else config.text
        if after == before:
            return f"{config.path} already has this entry.\n{config.note}"
        _replace(path, after)
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error}): fix that, or add this by hand"
        raise ConfigError(f"{config.path} {reason}:\n{config.text}") from error
    except (CannotMerge, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ConfigError(f"{config.path} was left as it is: {reason}. Add this by hand:\n{config.text}") from error
    return f"{config.path} {'now has' if before else 'was made with'} the server {SERVER_NAME}.\n{config.note}"


def _client(name: str) -> Client:
    if name not in CLIENTS:
        raise ConfigError(f"unknown client {name!r}: there is {', '.join(sorted(CLIENTS))}")
    return CLIENTS[name]


def _replace(path: Path, text: str) -> None:
    """Write a file with the permissions that it has: a client that reads at the same moment sees the old or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=path.stat().st_mode & 0o777 if path.exists() else 0o644) as stream:
        stream.write(text)


# The entries ----------------------------------------------------------------------------------------------------------


def _json_entry(key: str, **more: Any) -> Callable[[Sequence[str], Mapping[str, str]], str]:
    """How an entry of a JSON file is rendered: under `key`, with what this client wants besides."""

    def render(command: Sequence[str], env: Mapping[str, str]) -> str:
        entry = {"command": command[0], "args": list(command[1:]), "env": dict(env), **more}
        return json.dumps({key: {SERVER_NAME: entry}}, indent=2, ensure_ascii=False) + "\n"

    return render


def _render_codex(command: Sequence[str], env: Mapping[str, str]) -> str:
    lines = [
        f"[mcp_servers.{SERVER_NAME}]",
        f"command = {_toml_string(command[0])}",
        f"args = [{', '.join(_toml_string(word) for word in command[1:])}]",
        f"startup_timeout_sec = {STARTUP_TIMEOUT_S}",
        f"tool_timeout_sec = {TOOL_TIMEOUT_S}",
    ]
    if env:
        lines += ["", f"[mcp_servers.{SERVER_NAME}.env]"]
        lines += [f"{_toml_string(name)} = {_toml_string(value)}" for name, value in env.items()]
    return "\n".join(lines) + "\n"


def _toml_string(text: str) -> str:
    """A basic TOML string; JSON's escapes are among TOML's, but for DEL, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# What to do next: the client's own command, and how long it waits for a call ------------------------------------------


def _note_claude(command: Sequence[str], env: Mapping[str, str]) -> str:
    # The name before `-e`, which swallows the words after it.
    settings = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
    by_hand = shlex.join(["claude", "mcp", "add", "--scope", "user", SERVER_NAME, *settings, "--", *command])
    return (
        "This is for one project: start `claude` in its folder once and allow the server; until then `claude mcp list` "
        f"says that it is pending. It sets the time-out of a call to {TOOL_TIMEOUT_S} s; where MCP_TOOL_TIMEOUT (ms) "
        "is set for Claude Code, let it be no less. For all your projects instead, without a question:\n"
        f"  {by_hand}"
    )


def _note_codex(command: Sequence[str], env: Mapping[str, str]) -> str:
    settings = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    by_hand = shlex.join(["codex", "mcp", "add", SERVER_NAME, *settings, "--", *command])
    return (
        f"`codex mcp list` then shows the server. Codex's own command is\n  {by_hand}\nbut it sets no time-outs: "
        "without tool_timeout_sec Codex gives up on a call after 300 s."
    )


def _note_gemini(command: Sequence[str], env: Mapping[str, str]) -> str:
    settings = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
    flags = ["--scope", "user", "--timeout", str(TOOL_TIMEOUT_S * 1000), *settings]
    by_hand = shlex.join(["gemini", "mcp", "add", *flags, SERVER_NAME, command[0], "--", *command[1:]])
    return (
        f"`gemini mcp list` then shows the server as connected, in a folder that Gemini CLI trusts. `timeout` raises "
        f"its 10 minutes for a call to {TOOL_TIMEOUT_S} s. Gemini CLI's own command for the same is\n  {by_hand}"
    )


_WAIT_WITH_JOB: Final = (
    "Leave `wait_s` at its default of 40 s there. A call that takes longer hands back a job_id, and `job` waits on."
)


def _note_without_setting(where: str, gives_up: str) -> Callable[[Sequence[str], Mapping[str, str]], str]:
    """Of a client that has no time-out to raise, or was reported not to keep to it."""
    return lambda _command, _env: f"{where} {gives_up}: {_WAIT_WITH_JOB[0].lower()}{_WAIT_WITH_JOB[1:]}"


# The table ------------------------------------------------------------------------------------------------------------


def _codex_file(home: Path, folder: Path) -> Path:
    return Path(os.environ.get("CODEX_HOME") or home / ".codex") / "config.toml"


def _desktop_file(home: Path, folder: Path) -> Path:
    support = "Library/Application Support" if sys.platform == "darwin" else ".config"
    return home / support / "Claude/claude_desktop_config.json"


CLIENTS: Final[Mapping[str, Client]] = {
    "claude-code": Client(
        title="Claude Code",
        locate=lambda home, folder: folder / ".mcp.json",
        render=_json_entry("mcpServers", type="stdio", timeout=TOOL_TIMEOUT_S * 1000),
        merge=merge_json,
        note=_note_claude,
        over_http=(
            json_over_http("mcpServers", type="http", timeout=TOOL_TIMEOUT_S * 1000),
            note_over_http(
                "This is for one project: start `claude` in its folder once and allow the server. For all your "
                "projects instead (Claude Code then keeps the token, and waits as long as MCP_TOOL_TIMEOUT (ms) says):",
                ["claude", "mcp", "add", "--scope", "user", "--transport", "http"],
                "--header",
            ),
        ),
    ),
    "codex": Client(
        title="Codex CLI",
        locate=_codex_file,
        render=_render_codex,
        merge=merge_toml,
        note=_note_codex,
        over_http=(toml_over_http(TOOL_TIMEOUT_S), note_over_http("`codex mcp list` then shows the server.")),
    ),
    "gemini-cli": Client(
        title="Gemini CLI",
        locate=lambda home, folder: home / ".gemini/settings.json",
        render=_json_entry("mcpServers", timeout=TOOL_TIMEOUT_S * 1000),
        merge=merge_json,
        note=_note_gemini,
        over_http=(
            json_over_http("mcpServers", address="httpUrl", timeout=TOOL_TIMEOUT_S * 1000),
            note_over_http("`gemini mcp list` then shows the server as connected, in a folder that Gemini CLI trusts."),
        ),
    ),
    "cursor": Client(
        title="Cursor",
        locate=lambda home, folder: home / ".cursor/mcp.json",
        render=_json_entry("mcpServers", type="stdio"),
        merge=merge_json,
        note=_note_without_setting(
            "Switch the server on in Cursor's MCP settings. Cursor",
            "has no time-out to raise and gives up after 1 to 5 min",
        ),
        over_http=(
            json_over_http("mcpServers", token="${env:%s}"),
            note_over_http(f"Switch the server on in Cursor's MCP settings. {_WAIT_WITH_JOB}"),
        ),
    ),
    "vscode": Client(
        title="VS Code",
        locate=lambda home, folder: folder / ".vscode/mcp.json",
        render=_json_entry("servers", type="stdio"),
        merge=merge_json,
        note=_note_without_setting(
            "This is for one project: start the server from the file in VS Code. VS Code",
            "has no time-out to raise and was seen in trouble with calls over 5 min",
        ),
        over_http=(
            json_over_http("servers", token="${env:%s}", type="http"),
            note_over_http(f"This is for one project: start the server from the file in VS Code. {_WAIT_WITH_JOB}"),
        ),
    ),
    "copilot-cli": Client(
        title="Copilot CLI",
        locate=lambda home, folder: home / ".copilot/mcp-config.json",
        render=_json_entry("mcpServers", type="local", tools=["*"], timeout=TOOL_TIMEOUT_S * 1000),
        merge=merge_json,
        note=_note_without_setting(
            "`/mcp show` in Copilot CLI then names the server. Copilot CLI",
            "was reported to give up after 60 s whatever `timeout` says",
        ),
        over_http=(
            json_over_http("mcpServers", type="http", tools=["*"], timeout=TOOL_TIMEOUT_S * 1000),
            note_over_http(
                "`/mcp show` in Copilot CLI then names the server. Some versions were reported to send the variable's "
                f"name instead of the token: then write the token into the file. {_WAIT_WITH_JOB}"
            ),
        ),
    ),
    "claude-desktop": Client(
        title="Claude Desktop",
        locate=_desktop_file,
        render=_json_entry("mcpServers"),
        merge=merge_json,
        note=_note_without_setting(
            "Start Claude Desktop anew. It", "has no time-out to raise and gives up after about 60 s"
        ),
    ),
}

"""What clients are told of a server over HTTP: valid in their format, and never the token itself."""

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kernelgate.server import clients
from kernelgate.server.cli import main

URL = "http://gpu-host:8642/mcp"
NEAR = "http://127.0.0.1:8642/mcp"
SECRET = "kg_not-to-be-seen"
CLIENTS = sorted(name for name, client in clients.CLIENTS.items() if client.over_http)
BEARER = {"Authorization": "Bearer ${KERNELGATE_TOKEN}"}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the files of whoever runs it."""
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELGATE_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.delenv("KERNELGATE_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path / "project")


def config(*words: str) -> Result:
    return CliRunner().invoke(main, ["config", *words])


def entry(client: str, url: str, key: str = "mcpServers") -> dict[str, object]:
    found = clients.client_config_over_http(client, url, with_token=True)
    return dict(json.loads(found.text)[key]["kernelgate"])


def test_each_client_but_one_takes_a_server_over_http() -> None:
    assert set(clients.CLIENTS) - set(CLIENTS) == {"claude-desktop"}
    refused = config("claude-desktop", "--http", URL)
    assert refused.exit_code == 2
    assert "takes no server over HTTP from its file" in refused.output


def test_each_client_is_told_in_its_own_words() -> None:
    assert entry("claude-code", URL) == {"url": URL, "headers": BEARER, "type": "http", "timeout": 660_000}
    assert entry("gemini-cli", URL) == {"httpUrl": URL, "headers": BEARER, "timeout": 660_000}
    by_env = {"Authorization": "Bearer ${env:KERNELGATE_TOKEN}"}
    assert entry("cursor", URL) == {"url": URL, "headers": by_env}
    assert entry("vscode", URL, "servers") == {"url": URL, "headers": by_env, "type": "http"}
    copilot = {"url": URL, "headers": BEARER, "type": "http", "tools": ["*"], "timeout": 660_000}
    assert entry("copilot-cli", URL) == copilot
    codex = tomllib.loads(clients.client_config_over_http("codex", URL, with_token=True).text)
    told = {"url": URL, "bearer_token_env_var": "KERNELGATE_TOKEN", "tool_timeout_sec": 660}
    assert codex == {"mcp_servers": {"kernelgate": told}}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("write", [(), ("--write",)])
def test_the_token_stands_in_no_file_and_in_no_output(
    client: str, write: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELGATE_TOKEN", SECRET)
    done = config(client, "--http", NEAR, *write)
    assert done.exit_code == 0, done.output
    assert "Start the client with KERNELGATE_TOKEN set to the token" in done.output
    path = clients.client_config_over_http(client, NEAR, with_token=True).path
    text = path.read_text("utf-8") if write else done.output
    assert "KERNELGATE_TOKEN" in text
    assert SECRET not in text + done.output


@pytest.mark.parametrize("client", CLIENTS)
def test_on_this_host_no_token_is_sent_unless_there_is_one(client: str) -> None:
    done = config(client, "--http", NEAR)
    assert "Bearer" not in done.output
    assert "bearer_token_env_var" not in done.output
    assert "No token is sent" in done.output


@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_the_entry_takes_the_place_of_that_over_stdio_and_leaves_the_rest(client: str) -> None:
    before = clients.client_config(client, ["kernelgate", "serve"], {"KERNELGATE_HOME": "/data"})
    clients.write_config(before)
    assert config(client, "--http", URL, "--write").exit_code == 0
    text = before.path.read_text("utf-8")
    known = json.loads(text)["mcpServers"] if client == "claude-code" else tomllib.loads(text)["mcp_servers"]
    assert known["kernelgate"]["url"] == URL
    assert "command" not in known["kernelgate"]
    assert "KERNELGATE_HOME" not in text


def test_for_all_projects_the_shell_fills_the_token_into_the_command_of_claude_code() -> None:
    line = config("claude-code", "--http", URL).output.splitlines()[-1].strip()
    assert line == (
        f'claude mcp add --scope user --transport http kernelgate {URL} --header "Authorization: Bearer '
        '$KERNELGATE_TOKEN"'
    )


def test_what_is_no_address_is_told() -> None:
    done = config("codex", "--http", "8642")
    assert done.exit_code == 2
    assert "'8642' is no address of a server" in done.output

"""What clients are told about this server: valid in their format, harmless to what else stands in their files."""

import json
import stat
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.server import clients
from kernelgate.server.clients import ClientConfig, ConfigError, client_config, write_config

COMMAND = ["/opt/kernel gate/bin/kernelgate", "serve"]
ENV = {"KERNELGATE_HOME": "/data/gate", "CUDA_VISIBLE_DEVICES": "1"}
ENTRY_JSON = {"type": "stdio", "command": COMMAND[0], "args": ["serve"], "env": ENV, "timeout": 660_000}
PLAIN = {"command": COMMAND[0], "args": ["serve"], "env": ENV}
ENTRY_TOML = {"command": COMMAND[0], "args": ["serve"], "startup_timeout_sec": 60, "tool_timeout_sec": 660, "env": ENV}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test touches the files of whoever runs it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def config(client: str) -> ClientConfig:
    return client_config(client, COMMAND, ENV)


def written(client: str, before: str) -> str:
    """The client's file after our entry was written into it."""
    wanted = config(client)
    wanted.path.parent.mkdir(parents=True, exist_ok=True)
    wanted.path.write_text(before, encoding="utf-8")
    write_config(wanted)
    return wanted.path.read_text(encoding="utf-8")


def refusal(client: str, before: str) -> str:
    """The sentence with which a file is left as it is."""
    wanted = config(client)
    wanted.path.parent.mkdir(parents=True, exist_ok=True)
    wanted.path.write_text(before, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        write_config(wanted)
    assert wanted.path.read_text(encoding="utf-8") == before
    assert wanted.text in str(caught.value), "the user is told what to add by hand"
    return str(caught.value)


def test_claude_code_is_told_in_the_projects_own_file(tmp_path: Path) -> None:
    wanted = config("claude-code")
    assert wanted.path == tmp_path / "project/.mcp.json"
    assert json.loads(wanted.text) == {"mcpServers": {"kernelgate": ENTRY_JSON}}
    assert (
        "claude mcp add --scope user kernelgate -e KERNELGATE_HOME=/data/gate -e CUDA_VISIBLE_DEVICES=1 "
        "-- '/opt/kernel gate/bin/kernelgate' serve"
    ) in wanted.note


def test_codex_is_told_in_the_users_file(own_home: Path) -> None:
    wanted = config("codex")
    assert wanted.path == own_home / ".codex/config.toml"
    assert tomllib.loads(wanted.text) == {"mcp_servers": {"kernelgate": ENTRY_TOML}}
    assert "codex mcp add kernelgate --env KERNELGATE_HOME=/data/gate" in wanted.note


@pytest.mark.parametrize(
    ("client", "place", "key", "more"),
    [
        ("gemini-cli", "home/.gemini/settings.json", "mcpServers", {"timeout": 660_000}),
        ("cursor", "home/.cursor/mcp.json", "mcpServers", {"type": "stdio"}),
        ("vscode", "project/.vscode/mcp.json", "servers", {"type": "stdio"}),
        (
            "copilot-cli",
            "home/.copilot/mcp-config.json",
            "mcpServers",
            {"type": "local", "tools": ["*"], "timeout": 660_000},
        ),
        ("claude-desktop", "home/.config/Claude/claude_desktop_config.json", "mcpServers", {}),
    ],
)
def test_each_other_client_is_told_in_its_own_file_and_words(
    tmp_path: Path, client: str, place: str, key: str, more: dict[str, object]
) -> None:
    wanted = config(client)
    assert wanted.path == tmp_path / place
    assert json.loads(wanted.text) == {key: {"kernelgate": {**PLAIN, **more}}}


def test_the_command_for_gemini_ends_its_own_flags_before_those_of_the_server() -> None:
    assert (
        "gemini mcp add --scope user --timeout 660000 -e KERNELGATE_HOME=/data/gate -e CUDA_VISIBLE_DEVICES=1 "
        "kernelgate '/opt/kernel gate/bin/kernelgate' -- serve"
    ) in config("gemini-cli").note


@pytest.mark.parametrize("client", ["cursor", "vscode", "copilot-cli", "claude-desktop"])
def test_of_a_client_without_a_time_out_to_raise_it_says_to_wait_with_job(client: str) -> None:
    assert "leave `wait_s` at its default of 40 s" in config(client).note
    assert "`job` waits on" in config(client).note


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini-cli"])
def test_of_a_client_with_a_time_out_it_says_which(client: str) -> None:
    said = {"claude-code": "MCP_TOOL_TIMEOUT", "codex": "tool_timeout_sec", "gemini-cli": "`timeout`"}[client]
    assert said in config(client).note


def test_codex_may_keep_its_file_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    assert config("codex").path == tmp_path / "elsewhere/config.toml"


def test_an_unknown_client_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown client 'emacs': there is claude-code, claude-desktop, codex"):
        client_config("emacs", COMMAND, ENV)


@pytest.mark.parametrize("client", sorted(clients.CLIENTS))
def test_what_is_printed_says_where_it_goes_and_what_comes_next(client: str) -> None:
    wanted = config(client)
    text = clients.shown(wanted)
    assert str(wanted.path) in text
    assert wanted.text in text
    assert wanted.note in text


def test_every_client_waits_longer_than_a_call_may_take() -> None:
    longest_wait_s = 600
    assert json.loads(config("claude-code").text)["mcpServers"]["kernelgate"]["timeout"] > longest_wait_s * 1000
    assert tomllib.loads(config("codex").text)["mcp_servers"]["kernelgate"]["tool_timeout_sec"] > longest_wait_s


def test_the_serve_command_is_absolute_and_serves() -> None:
    program, *words = clients.serve_command(["--device", "cpu"])
    assert Path(program).is_absolute()
    assert Path(program).parent == Path(sys.executable).absolute().parent
    assert words in (["serve", "--device", "cpu"], ["-P", "-m", "kernelgate.server", "serve", "--device", "cpu"])


def test_an_installation_without_its_script_is_started_by_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    assert clients.serve_command() == [str(tmp_path / "python3"), "-P", "-m", "kernelgate.server", "serve"]
    (tmp_path / "kernelgate").touch()
    assert clients.serve_command() == [str(tmp_path / "kernelgate"), "serve"]


def test_only_variables_that_the_server_needs_are_handed_on() -> None:
    environ = {"KERNELGATE_HOME": "/d", "SECRET_TOKEN": "x", "LD_LIBRARY_PATH": "", "CUDA_VISIBLE_DEVICES": "0"}
    assert clients.carried_environment(environ) == {"KERNELGATE_HOME": "/d", "CUDA_VISIBLE_DEVICES": "0"}
    assert clients.carried_environment({"CUDA_VISIBLE_DEVICES": ""}) == {"CUDA_VISIBLE_DEVICES": ""}, "no GPU"


@pytest.mark.parametrize("client", sorted(clients.CLIENTS))
def test_a_missing_file_is_made_with_its_folder(client: str) -> None:
    wanted = config(client)
    assert "was made with the server kernelgate" in write_config(wanted)
    assert wanted.path.read_text(encoding="utf-8") == wanted.text


@pytest.mark.parametrize("client", sorted(clients.CLIENTS))
def test_writing_twice_changes_nothing(client: str) -> None:
    write_config(config(client))
    assert "already has this entry" in write_config(config(client))
    assert config(client).path.read_text(encoding="utf-8") == config(client).text


@pytest.mark.parametrize("client", sorted(clients.CLIENTS))
def test_an_old_entry_of_ours_is_replaced(client: str) -> None:
    old = client_config(client, ["/old/python", "-m", "x"], {"GONE": "1"})
    write_config(old)
    assert "now has the server kernelgate" in write_config(config(client))
    text = old.path.read_text(encoding="utf-8")
    assert "GONE" not in text
    assert "/old/python" not in text


@pytest.mark.parametrize("client", sorted(clients.CLIENTS))
def test_a_file_keeps_its_permissions_and_a_link_stays_a_link(client: str, tmp_path: Path) -> None:
    wanted = config(client)
    real = tmp_path / "dotfiles"
    real.write_text("", encoding="utf-8")
    real.chmod(0o640)
    wanted.path.parent.mkdir(parents=True, exist_ok=True)
    wanted.path.symlink_to(real)
    write_config(wanted)
    assert wanted.path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert real.read_text(encoding="utf-8") == wanted.text
    assert [path.name for path in tmp_path.glob(".dotfiles*")] == []


@pytest.mark.parametrize("client", sorted(clients.CLIENTS))
def test_a_folder_in_place_of_the_file_is_an_error_that_shows_the_entry(client: str) -> None:
    config(client).path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"cannot be written \(Is a directory\)"):
        write_config(config(client))


@pytest.mark.parametrize("client", sorted(clients.CLIENTS))
def test_a_file_that_is_not_text_is_left_as_it_is(client: str) -> None:
    wanted = config(client)
    wanted.path.parent.mkdir(parents=True, exist_ok=True)
    wanted.path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        write_config(wanted)
    assert wanted.path.read_bytes() == b"\xff\xfe\x00"


def test_other_servers_and_settings_in_json_survive_in_order_and_indentation() -> None:
    before = (
        '{\n    "z": [1, "ü"],\n    "mcpServers": {\n        "other": {"url": "http://x"}\n    },\n    "a": null\n}\n'
    )
    after = written("claude-code", before)
    document = json.loads(after)
    assert list(document) == ["z", "mcpServers", "a"]
    assert document["mcpServers"] == {"other": {"url": "http://x"}, "kernelgate": ENTRY_JSON}
    assert '\n    "z"' in after
    assert "ü" in after


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("{,}", "it is not JSON (line 1"),
        ('// mine\n{"mcpServers": {}}', "it is not JSON (line 1"),
        ("[]", "it is not an object with names"),
        ('{"mcpServers": []}', "its mcpServers is not an object with names"),
        ('{"a": 1, "a": 2}', "it names ['a'] twice"),
    ],
)
def test_json_that_cannot_be_merged_without_doubt_is_left_as_it_is(before: str, reason: str) -> None:
    assert reason in refusal("claude-code", before)


def test_other_tables_settings_and_comments_in_toml_survive() -> None:
    before = (
        '# mine\nmodel = "x"\n\n[mcp_servers.kernelgate] # old\ncommand = "old"\n\n'
        '[mcp_servers.kernelgate.env]\nA = "1"\n'
        '\n# of the other one\n[mcp_servers.other]\ncommand = "y" # stays\n\n[[list]]\nn = 1\n'
    )
    after = written("codex", before)
    assert tomllib.loads(after) == {
        "model": "x",
        "mcp_servers": {"other": {"command": "y"}, "kernelgate": ENTRY_TOML},
        "list": [{"n": 1}],
    }
    for kept in ("# mine\n", "\n# of the other one\n[mcp_servers.other]", "# stays"):
        assert kept in after
    assert "# old" not in after


def test_a_server_with_a_longer_name_is_not_taken_for_ours() -> None:
    after = written("codex", '[mcp_servers.kernelgate2]\ncommand = "y"\n')
    assert tomllib.loads(after)["mcp_servers"] == {"kernelgate2": {"command": "y"}, "kernelgate": ENTRY_TOML}


def test_a_quoted_table_of_ours_is_replaced() -> None:
    after = written("codex", '[mcp_servers."kernelgate"]\ncommand = "old"\n')
    assert tomllib.loads(after)["mcp_servers"] == {"kernelgate": ENTRY_TOML}


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("model = ", "it is not TOML"),
        ('mcp_servers.kernelgate.command = "old"\n', "cannot be replaced line by line"),
        ('mcp_servers = { kernelgate = { command = "old" } }\n', "cannot be replaced line by line"),
        ('mcp_servers = { other = { command = "y" } }\n', "cannot be replaced line by line"),
        ('text = """\n[mcp_servers.kernelgate]\n"""\n', "cannot be replaced line by line"),
        ("mcp_servers = 3\n", "its mcp_servers is not an object with names"),
    ],
)
def test_toml_that_cannot_be_merged_without_doubt_is_left_as_it_is(before: str, reason: str) -> None:
    assert reason in refusal("codex", before)


WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=30)


@given(command=st.lists(WORDS, min_size=1, max_size=4), value=WORDS)
def test_any_path_and_any_value_come_through_both_formats(command: list[str], value: str) -> None:
    env = {"KERNELGATE_HOME": value}
    as_json = json.loads(client_config("claude-code", command, env).text)["mcpServers"]["kernelgate"]
    as_toml = tomllib.loads(client_config("codex", command, env).text)["mcp_servers"]["kernelgate"]
    for entry in (as_json, as_toml):
        assert [entry["command"], *entry["args"]] == command
        assert entry["env"] == env

"""Tokens: what opens a server over HTTP, for whom, and what is kept of them."""

import errno
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgate.server import whole_files
from kernelgate.server.tokens import DEFAULT_URL, TokenError, Tokens, address

URL = "http://127.0.0.1:9000/mcp"


def test_a_token_opens_its_account_at_its_address_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    token, secret = Tokens(tmp_path).add("alice", URL)
    kept = (tmp_path / "tokens.json").read_text("utf-8")
    assert Tokens(tmp_path).account_of(secret, URL) == "alice"
    assert secret not in kept
    assert token.sha256 in kept
    assert stat.S_IMODE((tmp_path / "tokens.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("secret", "url", "now", "said"),
    [
        ("", URL, "", "not known here"),
        ("x", URL, "", "not known here"),
        ("\ud800\x00ü", URL, "", "not known here"),
        (None, "http://127.0.0.1:9001/mcp", "", "this token is for http://127.0.0.1:9000/mcp, and this server is"),
        (None, "https://127.0.0.1:9000/mcp", "", "this token is for"),
        (None, URL, "2999-01-01T00:00:00Z", "this token ended at"),
    ],
)
def test_what_opens_nothing_says_why(tmp_path: Path, secret: str | None, url: str, now: str, said: str) -> None:
    tokens = Tokens(tmp_path)
    _, good = tokens.add("alice", URL, days=1)
    with pytest.raises(TokenError, match=said):
        tokens.account_of(good if secret is None else secret, url, now)


def test_a_token_that_is_removed_is_refused_by_a_server_that_runs(tmp_path: Path) -> None:
    running = Tokens(tmp_path)
    token, secret = Tokens(tmp_path).add("alice", URL)
    assert running.account_of(secret, URL) == "alice"
    Tokens(tmp_path).remove(token.token_id)
    with pytest.raises(TokenError, match="not known here"):
        running.account_of(secret, URL)
    with pytest.raises(TokenError, match=r"no token 't[0-9a-f]{8}'; .* list"):
        Tokens(tmp_path).remove(token.token_id)


@pytest.mark.parametrize("account", ["", "house", "*", "a b", "../x", "ä", "a" * 65, "-a", "a\n"])
def test_what_is_no_name_of_an_account_is_refused(tmp_path: Path, account: str) -> None:
    with pytest.raises(TokenError, match="is no name of an account"):
        Tokens(tmp_path).add(account, URL)
    assert not (tmp_path / "tokens.json").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://Host:80/mcp/", "http://host/mcp"),
        ("https://host:443/mcp", "https://host/mcp"),
        ("http://[::1]:8642/mcp", "http://[::1]:8642/mcp/"),
    ],
)
def test_two_spellings_of_one_address_are_one(one: str, other: str) -> None:
    assert address(one) == address(other)


@pytest.mark.parametrize(
    "text", ["", "host", "ftp://host/", "http://", "http://host:x/", "http://me@host/", "http://[::1/"]
)
def test_what_is_no_address_is_told_with_one_that_is(text: str) -> None:
    with pytest.raises(TokenError, match=DEFAULT_URL):
        address(text)


@pytest.mark.parametrize("text", ["", "[]]", '[{"account": "a"}]', "{}"])
def test_a_file_that_is_not_ours_opens_nothing_and_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokens.json").write_text(text)
    with pytest.raises(TokenError, match=r"tokens\.json cannot be read .*: mend it, or remove it"):
        Tokens(tmp_path).account_of("x", URL)


def test_two_commands_at_once_lose_no_token(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "kernelgate.server", "tokens", "add", "--data", str(tmp_path)]
    at_once = [
        subprocess.Popen([*command, f"agent{n}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    secrets = [process.communicate(timeout=60)[0].strip() for process in at_once]
    tokens = Tokens(tmp_path)
    assert len({token.token_id for token in tokens.all()}) == 4
    assert [tokens.account_of(secret, DEFAULT_URL) for secret in secrets] == [f"agent{n}" for n in range(4)]
    listed = subprocess.run(
        [*command[:5], "list", "--data", str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert "agent3" in listed
    assert not any(secret in listed for secret in secrets)
    assert len(json.loads((tmp_path / "tokens.json").read_text("utf-8"))) == 4


def test_a_write_that_fails_leaves_the_tokens_and_nothing_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tokens = Tokens(tmp_path)
    known = (tokens.add("alice", URL)[0],)
    monkeypatch.setattr(whole_files.os, "fsync", full)
    with pytest.raises(TokenError, match=r"cannot be written \(No space left on device\)"):
        tokens.add("bob", URL)
    assert tokens.all() == known
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokens.json", "tokens.lock"]


def test_the_name_of_a_removed_token_is_never_anothers(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    gone = tokens.remove(tokens.add("alice", URL)[0].token_id)
    assert tokens.add("bob", URL)[0].token_id != gone.token_id

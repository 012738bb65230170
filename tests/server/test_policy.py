"""Caps, prices and rules from one TOML file: what it may say, and one clear sentence for what it may not."""

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from test_command_mistakes import run, sentence_of

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Budget, Rung
from kernelgate.budget.rules import find_rules
from kernelgate.server.app import build
from kernelgate.server.policy import Policy, PolicyError, policy_of, priced_tools, read_policy
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings, SettingsError, from_environment

GOOD = """
rule = "threshold"

[caps]
device_s = 30.0
deadline_s = 600
precise_calls = 4

[accounts.local]
device_s = 45.0

[prices.quick_time]
first_hold_s = 0.5

[rules.threshold]
min_ratio = 1.1
"""
MISTAKES: list[tuple[str, str]] = [
    ("caps = 3", "caps = 3 is not possible: it is a table, [caps]"),
    ("rules = 3", "rules = 3 is not possible: it is a table, [rules]"),
    ("[accounts.'']\ndevice_s = 1", "accounts: '' is not possible as a name: string should have at least 1 char"),
    ("[caps]\noverride_calls = 21", "caps.override_calls = 21 is not possible: each of them is one of the 20 precise_"),
    ("[prices.compile]\nfirst_hold_s = 1", "there is no price of 'compile'; prices are set for: check_correctness"),
    ("budget = 3", "budget is not known; known here are: accounts, caps, prices, rule, rules"),
    ("[caps]\ngpu_s = 3.0", "caps.gpu_s is not known; known here are: check_calls, compile_calls, deadline_s, dev"),
    ("[caps]\ndevice_s = -1.0", "caps.device_s = -1.0 is not possible: input should be greater than or equal to 0"),
    ("[caps]\ndevice_s = nan", "caps.device_s = nan is not possible: input should be a finite number"),
    ("[caps]\nprecise_calls = 1.5", "caps.precise_calls = 1.5 is not possible: input should be a valid integer"),
    ("[caps]\ndevice_s = '9'", "caps.device_s = '9' is not possible: input should be a valid number"),
    ("[accounts.me]\ndevice_s = -2", "accounts.me.device_s = -2 is not possible"),
    ("[accounts.me]\nruns = 2", "accounts.me.runs is not known; known here are: device_s"),
    ("[accounts.me]", "accounts.me.device_s is missing"),
    ("[accounts.house]\ndevice_s = 1", "accounts.house cannot have a cap: it pays for what is nobody's fault"),
    ("[prices.quick_time]\nfirst_hold_s = 0", "prices.quick_time.first_hold_s = 0 is not possible"),
    ("[prices.get_budget]\nfirst_hold_s = 1", "there is no price of 'get_budget'; prices are set for: check_correctn"),
    ("rule = 'best'", "there is no rule 'best'; the rules are: flat, halving, threshold"),
    ("[rules.best]\neta = 3.0", "there is no rule 'best'"),
    (
        "[rules.halving]\nbeta = 3.0",
        "rule halving has no parameter 'beta'; its parameters are: bootstrap, disorder_bound, disorder_pairs, eta,",
    ),
    ("[rules.halving]\neta = 0.5", "parameter eta of rule halving must be from 1 to 100, got 0.5"),
    ("[caps", "is no TOML"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_a_mistake_in_the_file_is_one_sentence_that_says_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy_of(text, Path("kernelgate.toml"))
    assert str(caught.value).startswith("kernelgate.toml")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_file_the_defaults_hold_and_an_empty_one_says_the_same(tmp_path: Path) -> None:
    assert read_policy(tmp_path, None) == Policy() == policy_of("", tmp_path)
    assert Policy().caps == Budget()


def test_the_file_of_the_data_folder_is_read_and_a_named_one_goes_before_it(tmp_path: Path) -> None:
    (tmp_path / "kernelgate.toml").write_text("rule = 'flat'")
    (tmp_path / "other.toml").write_text("rule = 'threshold'")
    assert from_environment({"KERNELGATE_HOME": str(tmp_path)}).policy.rule == "flat"
    named = {"KERNELGATE_HOME": str(tmp_path), "KERNELGATE_CONFIG": str(tmp_path / "other.toml")}
    assert from_environment(named).policy.rule == "threshold"
    assert from_environment(named, policy_file=tmp_path / "kernelgate.toml").policy.rule == "flat"


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"there is no file .*gone\.toml; name another with --config"):
        from_environment({"KERNELGATE_HOME": str(tmp_path)}, policy_file=tmp_path / "gone.toml")


def test_a_mistake_ends_serve_before_a_ledger_is_made(tmp_path: Path) -> None:
    (tmp_path / "kernelgate.toml").write_text("[caps]\ndevice_s = -1.0\n")
    assert "caps.device_s = -1.0 is not possible" in sentence_of("serve", "--data", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["kernelgate.toml"]


def test_a_cap_that_binds_nobody_keeps_a_server_from_starting_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kernelgate.toml").write_text("[accounts.carol]\ndevice_s = 9.0\n")
    data = ("--data", str(tmp_path))
    said = sentence_of("serve", *data)
    assert "nobody has the account 'carol', so that accounts.carol in kernelgate.toml binds nothing" in said
    assert sentence_of("config", "codex", *data) == said, "what `serve` would refuse is written nowhere"
    assert run("tokens", "list", *data).returncode == 0
    assert run("tokens", "add", "carol", *data).returncode == 0
    listed = run("tokens", "list", *data, COLUMNS="40").stdout
    assert "http://127.0.0.1:8642/mcp" in listed, "an address is whole on a narrow terminal too"
    assert run("config", "codex", *data).returncode == 0


def test_the_entry_of_a_client_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    said = run("config", "claude-code", "--data", str(tmp_path), "--config", str(file)).stdout
    assert str(file) in said


def test_a_price_replaces_the_first_hold_of_a_tool_and_of_no_other() -> None:
    tools, own = priced_tools(policy_of(GOOD, Path("x"))), priced_tools(Policy())
    assert tools[Rung.quick].first_hold_s == 0.5
    assert tools[Rung.check] == own[Rung.check]


async def calls(policy: Policy, data_dir: Path, *wishes: dict[str, Any]) -> list[dict[str, Any]]:
    server = build(lambda: open_services(Settings(data_dir=data_dir, device="cpu", policy=policy)))
    async with Client(server) as client:
        results = [await client.call_tool("start_run", {"task": "softmax", **wish}) for wish in wishes]
    return [result.structured_content or {"said": result.content[0].text} for result in results]


@pytest.mark.anyio
async def test_an_agent_gets_the_caps_and_the_rule_of_the_file_and_may_ask_for_less_but_not_for_more(
    tmp_path: Path,
) -> None:
    policy = policy_of(GOOD, Path("x"))
    plain, less, more = await calls(policy, tmp_path, {}, {"device_s": 7.5, "rule": "flat"}, {"device_s": 31.0})
    run = plain["run"]
    assert (run["rule"], run["rule_parameters"]) == ("threshold", {"min_ratio": 1.1})
    assert (run["budget"]["device_s"], run["budget"]["precise_calls"]) == (30.0, 4)
    assert (less["run"]["rule"], less["run"]["budget"]["device_s"]) == ("flat", 7.5)
    assert "device_s=31 is above the server's cap of 30" in more["said"]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert len(ledger.runs()) == 2
        assert ledger.query("SELECT device_s_cap FROM accounts WHERE account_id = 'local'") == [{"device_s_cap": 45.0}]


@pytest.mark.anyio
async def test_more_than_the_cap_is_refused_before_the_task_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tried(*_: object) -> None:
        raise AssertionError("the task was tried")

    monkeypatch.setattr("kernelgate.server.book.qualify", tried)
    [more] = await calls(Policy(), tmp_path, {"device_s": 1000.0})
    assert "device_s=1000 is above the server's cap of 120; ask for at most that" in more["said"]


@pytest.mark.anyio
async def test_what_is_left_of_a_run_is_no_more_than_what_its_account_has_left(tmp_path: Path) -> None:
    tight = policy_of("[caps]\ndevice_s = 30.0\n[accounts.local]\ndevice_s = 4.5\n", Path("x"))
    [started] = await calls(tight, tmp_path, {})
    assert started["run"]["budget"]["device_s"] == 30.0
    assert started["run"]["remaining"]["device_s"] == 4.5
    assert "4.5 cpu_s" in started["summary"]


@pytest.mark.anyio
async def test_a_cap_that_was_taken_out_of_the_file_is_gone(tmp_path: Path) -> None:
    await calls(policy_of(GOOD, Path("x")), tmp_path)
    await calls(Policy(), tmp_path)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.query("SELECT device_s_cap FROM accounts WHERE account_id = 'local'") == [{"device_s_cap": None}]


def test_the_file_that_the_readme_shows_says_what_holds_without_it() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    chapter = text.partition("## Caps, prices and rules")[2]
    shown = policy_of(chapter.partition("```toml\n")[2].partition("```")[0], Path("README.md"))
    assert (shown.caps, shown.rule) == (Budget(), Policy().rule)
    assert shown.rules == {"halving": dict(find_rules()["halving"].defaults)}
    assert priced_tools(shown) == priced_tools(Policy())


SPENT = policy_of("[accounts.local]\ndevice_s = 0\n", Path("x"))


@pytest.mark.anyio
async def test_an_account_with_nothing_left_is_told_its_cap_before_the_task_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tried(*_: object) -> None:
        raise AssertionError("the task was tried")

    monkeypatch.setattr("kernelgate.server.book.qualify", tried)
    [refused] = await calls(SPENT, tmp_path, {})
    assert refused["said"].startswith("No device seconds are left under the cap of account local (0 s)")
    assert "ask who runs the server for more" in refused["said"]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.runs() == ()


@pytest.mark.anyio
async def test_a_run_that_was_opened_before_is_found_by_its_key_and_gone_on_with_although_nothing_is_left(
    tmp_path: Path,
) -> None:
    [opened] = await calls(Policy(), tmp_path, {"idempotency_key": "k"})
    again, resumed, new = await calls(SPENT, tmp_path, {"idempotency_key": "k"}, {"resume": "r1"}, {})
    assert again["run"]["run_id"] == resumed["run"]["run_id"] == opened["run"]["run_id"]
    assert again["run"]["remaining"]["device_s"] == 0
    assert "said" in new


@pytest.mark.anyio
async def test_a_cap_of_all_accounts_together_is_told_as_that(tmp_path: Path) -> None:
    [refused] = await calls(policy_of('[accounts."*"]\ndevice_s = 0\n', Path("x")), tmp_path, {})
    assert "under the cap of all accounts together (0 s)" in refused["said"]

"""How a run of the conformance suite is judged, and that its fixtures work; the suite itself runs in `make clients`."""

import json
from pathlib import Path

import pytest
from conformance import FIXTURE_FREE, SERVERS, VERSIONS, Outcome, expected, outcome_of, verdict
from mcp import Client
from node_box import Seen
from real_clients import page
from suite_fixtures import MEDIA, OWN, PROMPTS, RESOURCES, with_fixtures

from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tools.kit.catalogue import find_tools


def results(folder: Path, scenario: str, **checks: str) -> None:
    """What the suite writes of one scenario."""
    place = folder / f"server-{scenario}-2026-12-01T14-45-40-290Z"
    place.mkdir()
    listed = [{"id": name, "status": status, "description": f"about {name}"} for name, status in checks.items()]
    (place / "checks.json").write_text(json.dumps(listed))


def test_every_expected_failure_has_a_reason_and_stands_once() -> None:
    for kind in SERVERS:
        for version in VERSIONS:
            assert all(len(reason) > 20 for reason in expected(kind, version).values())


def test_of_the_real_server_only_what_asks_for_nothing_by_name_is_expected_to_fail() -> None:
    scenarios = {check.split("/")[0] for version in VERSIONS for check in expected("real", version)}
    assert scenarios <= FIXTURE_FREE


def test_a_check_that_stands_twice_is_an_error(tmp_path: Path) -> None:
    entry = '[[expected]]\nreason = "r"\nservers = ["real"]\nversions = ["2025-11-25"]\nchecks = ["ping/ping"]\n'
    path = tmp_path / "expected.toml"
    path.write_text(entry * 2)
    with pytest.raises(ValueError, match="ping/ping stands twice"):
        expected("real", "2025-11-25", path)


def test_failures_are_named_by_scenario_and_check_and_warnings_do_not_count(tmp_path: Path) -> None:
    results(tmp_path, "tools-list", a="SUCCESS", b="FAILURE", c="WARNING", d="SKIPPED")
    assert outcome_of(tmp_path, "real") == Outcome(1, {"tools-list/b": "about b"})


def test_scenarios_that_ask_by_name_count_for_the_fixtures_alone(tmp_path: Path) -> None:
    results(tmp_path, "tools-call-image", a="SUCCESS", b="FAILURE")
    assert outcome_of(tmp_path, "real") == Outcome(0, {})
    assert outcome_of(tmp_path, "fixtures") == Outcome(1, {"tools-call-image/b": "about b"})


def test_an_unexpected_failure_and_an_unexpected_pass_are_both_told() -> None:
    assert verdict(Outcome(3, {"a/b": "broken"}), {"c/d": "known"}) == [
        "a/b failed: broken",
        "c/d passes, and is expected to fail",
    ]
    assert verdict(Outcome(3, {"a/b": "broken"}), {"a/b": "known"}) == []


def test_a_run_in_which_nothing_passed_is_no_success() -> None:
    assert verdict(Outcome(0, {}), {}) == ["no check passed at all"]


def test_the_record_names_client_version_and_what_was_seen_and_marks_what_failed() -> None:
    text = page(
        [Seen("Codex", "1.0", "list", True, "enabled"), Seen("Codex", "1.0", "call", False, "a | b\nc")], "today"
    )
    assert "| Codex | 1.0 | list | enabled |" in text
    assert "| Codex | 1.0 | call | FAILED: a \\| b c |" in text


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_fixtures_lie_over_the_real_server_and_hide_nothing_of_it(tmp_path: Path, mode: str) -> None:
    settings = Settings(data_dir=tmp_path, device="cpu")
    async with Client(with_fixtures(build(lambda: open_services(settings))), mode=mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == [*(tool.name for tool in find_tools()), *OWN, *MEDIA]
        real = await client.call_tool("list_tasks", {"query": "soft"})
        assert real.structured_content["tasks"][0]["name"] == "softmax"
        failed = await client.call_tool("test_error_handling", {})
        assert failed.is_error
        assert "on purpose" not in failed.content[0].text, "the text of an exception reaches nobody"
        listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
        assert listed >= {*RESOURCES, "kernelgate://runs"}
        assert {prompt.name for prompt in (await client.list_prompts()).prompts} == {*PROMPTS, "audit", "optimise"}
        assert (await client.read_resource("kernelgate://tasks")).contents

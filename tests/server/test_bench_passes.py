"""A stream through a client, call by call: the order of calls, what is written down, and what ends a pass early."""

from typing import Any

import anyio
import pytest
from bench_streams import QUICK, STREAM, ScriptedClient, played, refusal, well, went
from mcp import Client

from kernelgate.budget.ladder.compare import compare
from kernelgate.budget.ladder.model import FLAT, Line, Stream
from kernelgate.budget.ladder.play import play
from kernelgate.budget.rules import find_rules
from kernelgate.server.bench.live import Player, marked
from kernelgate.server.bench.record import played_of, truth_of


def test_each_candidate_climbs_rung_by_rung_and_all_of_it_is_written_down() -> None:
    seen, client = played(well)
    assert [tool for tool, _ in client.asked[1:5]] == ["compile", "check_correctness", "quick_time", "precise_time"]
    assert len(seen.asked) == 12
    assert not seen.ended
    truth = truth_of(STREAM, seen)
    assert truth.complete
    assert [outcome.ratio for outcome in truth.tried[1].outcomes] == [None, None, 1.5, 1.48]
    assert played_of(STREAM, seen, truth).best == "c"


def test_a_live_pass_reads_like_its_replay() -> None:
    seen, _ = played(well)
    truth = truth_of(STREAM, seen)
    live, replayed = played_of(STREAM, seen, truth), play(truth, find_rules()[FLAT], {})
    assert live.live
    assert not replayed.live
    alike = {"calls", "device_s", "best", "admitted", "refused", "partial"}
    assert live.model_dump(include=alike) == replayed.model_dump(include=alike)
    assert [(point.device_s, point.id) for point in live.curve] == [(p.device_s, p.id) for p in replayed.curve]


def test_a_parent_is_named_by_its_candidate_id_and_the_source_says_for_which_rule_it_was_sent() -> None:
    lines = (Line(id="a", source="x = 1", note="a"), Line(id="b", parent="a", source="y = 2\n\n", note="b"))
    _, client = played(
        lambda *_: went("build_failed") | {"status": "failed"}, stream=Stream(name="s", task="t", lines=lines)
    )
    assert client.asked[2][1]["parent_id"] == "c1"
    assert client.asked[2][1]["source"] == "y = 2\n# flat\n"
    assert "parent_id" not in client.asked[1][1]


def test_what_is_refused_at_precise_is_asked_once_more_at_the_end_best_first() -> None:
    def shut(name: str, tool: str) -> dict[str, Any]:
        return refusal("rule") if tool == "precise_time" else well(name, tool)

    seen, client = played(shut, rule="halving")
    assert [client.ids[arguments["candidate_id"]] for tool, arguments in client.asked if tool == "precise_time"] == [
        "a", "b", "c", "b", "c", "a",
    ]  # fmt: skip
    made = played_of(STREAM, seen, None)
    assert set(made.refused) == set(QUICK)
    assert made.best is None
    assert made.calls["precise"] == 0


def test_what_is_let_in_the_second_time_is_not_told_as_refused() -> None:
    knocked: list[str] = []

    def second_time(name: str, tool: str) -> dict[str, Any]:
        if tool == "precise_time" and name == "a":
            knocked.append(name)
            return refusal("rule") if len(knocked) == 1 else went("faster", 1.12)
        return well(name, tool)

    seen, _ = played(second_time, rule="halving")
    made = played_of(STREAM, seen, None)
    assert made.refused == ()
    assert made.admitted == ("b", "c", "a")


@pytest.mark.parametrize("kind", ["purse", "deadline"])
def test_a_budget_that_ends_ends_the_pass_and_the_truth_is_marked(kind: str) -> None:
    def ends(name: str, tool: str) -> dict[str, Any]:
        return refusal(kind) if (name, tool) == ("b", "quick_time") else well(name, tool)

    seen, client = played(ends, budget=5.0)
    assert client.asked[0][1]["device_s"] == 5.0
    assert seen.ended.startswith("its budget ended at quick of b")
    truth = truth_of(STREAM, seen)
    assert not truth.complete
    assert [len(tried.outcomes) for tried in truth.tried] == [4, 2, 0]
    row = compare(truth, played_of(STREAM, seen, truth))
    assert row.partial
    assert row.candidates == 3


def test_a_rung_that_this_device_does_not_have_stops_the_candidate_alone() -> None:
    def elsewhere(name: str, tool: str) -> dict[str, Any]:
        return refusal("not_here") if (name, tool) == ("a", "quick_time") else well(name, tool)

    seen, _ = played(elsewhere)
    assert not seen.ended
    assert [each.refused for each in seen.asked if each.id == "a"] == [None, None, "not_here"]
    assert played_of(STREAM, seen, truth_of(STREAM, seen)).refused == ()


def test_a_fault_of_the_server_stops_the_candidate_and_three_in_a_row_the_pass() -> None:
    def faulty(name: str, tool: str) -> dict[str, Any]:
        return (
            {"error": "The device did not answer."} if (name, tool) == ("b", "check_correctness") else well(name, tool)
        )

    seen, _ = played(faulty)
    assert not seen.ended
    assert [each.said for each in seen.asked if each.id == "b"] == ["", "The device did not answer."]
    seen, _ = played(lambda *_: {"error": "The device did not answer."})
    assert seen.ended.startswith("3 candidates in a row met a fault, the last one c")


def test_what_an_interrupted_pass_saw_stays() -> None:
    def cut(name: str, tool: str) -> dict[str, Any]:
        if name == "b":
            raise KeyboardInterrupt
        return well(name, tool)

    client: Client = ScriptedClient(cut)  # type: ignore[assignment]  # as far as it is used
    player = Player(client, STREAM, FLAT)

    async def playing() -> None:
        await player.play(None, lambda *_: None)

    with pytest.raises(KeyboardInterrupt):
        anyio.run(playing)
    seen = player.seen()
    assert seen is not None
    assert len(seen.asked) == 4
    assert seen.ended == "it was interrupted"


def test_a_marker_changes_no_line_of_a_source() -> None:
    assert marked("a\n\nb\n\n\n", "flat") == "a\n\nb\n# flat\n"
    assert marked("a", "flat") != marked("a", "halving")

"""What follows from passes: the report, its table, where a rule lost, plots, and the server that is asked for."""

import importlib.util
import io
import tomllib
from pathlib import Path

import pytest
from bench_streams import PRECISE, QUICK, STREAM, played, stream, well
from rich.console import Console

from kernelgate.budget.ladder.model import FLAT
from kernelgate.budget.ladder.stream import read_stream
from kernelgate.server.bench import plots
from kernelgate.server.bench.ladder_command import draw
from kernelgate.server.bench.ladder_tables import all_streams_table, closing, stream_table
from kernelgate.server.bench.live import Pass
from kernelgate.server.bench.report import (
    LadderReport,
    StreamReport,
    WarmUp,
    ladder_report,
    read_report,
    stream_report,
)  # fmt: skip
from kernelgate.server.bench.serving import caps_for, policy_text, server_on
from kernelgate.server.policy import Policy, Price, policy_of
from kernelgate.server.settings import Settings

WORSE = "c"


def halved(*admitted: str) -> Pass:
    """A live pass of halving that let these in, taken from the pass without a gate."""
    flat, _ = played(well)
    asked = tuple(
        each if each.rung != "precise" or each.id in admitted
        else each.model_copy(update={"outcome": None, "refused": "rule", "said": "No."})
        for each in flat.asked
    )  # fmt: skip
    return flat.model_copy(update={"rule": "halving", "asked": asked, "run_id": "r2"})


def reported(*passes: Pass, why: tuple[str, ...] = ()) -> StreamReport:
    return stream_report(
        STREAM, passes, ("halving", FLAT), {"threshold": {"min_ratio": 1.0}}, ledger="not kept",
        warm_up=WarmUp(device_s=1.0, wall_s=2.0), why=why,
    )  # fmt: skip


def whole(*streams: StreamReport, expected: int = 1) -> LadderReport:
    return ladder_report(
        streams, seed=0, rules=("threshold", FLAT), live=("halving",), budget_device_s=None, expected=expected
    )


def printed(item: object) -> str:
    console = Console(file=io.StringIO(), width=200, soft_wrap=True)
    console.print(item)
    return str(console.file.getvalue())  # type: ignore[attr-defined]  # a StringIO


FLAT_PASS, _ = played(well)


def test_a_rule_that_missed_the_best_is_told_with_what_it_cost() -> None:
    report = whole(reported(FLAT_PASS, halved("a", "b")))
    told = list(closing(report))
    assert told[0] == "Where the ladder lost:"
    assert f"its best, b, is {(1.6 / 1.48 - 1) * 100:.2f} % slower than {WORSE}" in told[1]
    assert "halving, live, refused c, proven faster than its best by the flat pass (1 by more than 1 %)" in told[2]
    (row,) = [row for row in report.streams[0].compared if row.rule == "halving"]
    assert row.false_drops_1pct == (WORSE,)


def test_a_rule_that_found_nothing_is_measured_against_the_baseline() -> None:
    told = " ".join(closing(whole(reported(FLAT_PASS, halved()))))
    assert "it found none, and the baseline is 60.00 % slower than c" in told


def test_a_rule_that_lost_nothing_is_told_so_too() -> None:
    assert list(closing(whole(reported(FLAT_PASS, halved("b", "c"))))) == [
        "No rule spent more than flat or found less."
    ]


def test_the_tables_have_a_line_for_each_rule() -> None:
    report = whole(reported(FLAT_PASS, halved("b", "c")))
    table = printed(stream_table(report.streams[0]))
    assert "s: 3 candidates of t, halving before flat" in table
    assert all(name in table for name in ("flat, the truth", "halving, live", "threshold, replayed"))
    lines = [line.split()[:6] for line in printed(all_streams_table(report)).splitlines()]
    assert ["live", "halving", "1", "1", "11.000", "1.09"] in lines, "12 calls against 11"
    assert ["replayed", "threshold", "1", "1", "12.000", "1.00"] in lines


def test_where_nothing_was_timed_no_rule_is_said_to_have_held() -> None:
    checked = [
        each.model_copy(update={"asked": tuple(one for one in each.asked if one.rung in ("compile", "check"))})
        for each in (FLAT_PASS, halved())
    ]
    assert list(closing(whole(reported(*checked)))) == [
        "Nothing could be compared with flat: no best candidate was found."
    ]


def test_without_a_flat_pass_there_is_no_truth_and_nothing_is_compared() -> None:
    report = whole(reported(halved("a")))
    assert report.partial
    assert report.streams[0].truth is None
    assert report.streams[0].why_partial == ("flat: it was not begun",)
    assert list(closing(report)) == ["Nothing could be compared with flat: no best candidate was found."]
    assert whole(reported(), expected=2).partial


def test_a_pass_that_ended_early_marks_the_report_and_its_rows() -> None:
    cut = FLAT_PASS.model_copy(update={"asked": FLAT_PASS.asked[:6], "ended": "its budget ended at quick of b"})
    report = whole(reported(cut, halved("b", "c")))
    assert report.partial
    assert "flat: its budget ended at quick of b" in report.streams[0].why_partial
    assert all(row.partial for row in report.streams[0].compared)


def test_a_flat_pass_that_ended_early_is_no_loss_of_a_rule_that_went_on() -> None:
    cut = FLAT_PASS.model_copy(update={"asked": FLAT_PASS.asked[:6], "ended": "its budget ended at quick of b"})
    assert list(closing(whole(reported(cut, halved("b", "c"))))) == [
        "No rule spent more than flat or found less, as far as it was played."
    ]


def test_faults_and_rungs_that_the_device_lacks_are_noted() -> None:
    asked = list(FLAT_PASS.asked)
    asked[0] = asked[0].model_copy(update={"outcome": None, "said": "The device did not answer."})
    asked[4] = asked[4].model_copy(update={"outcome": None, "refused": "not_here", "said": "No GPU."})
    notes = reported(FLAT_PASS.model_copy(update={"asked": tuple(asked)})).notes
    assert notes == (
        "flat: a met a fault at compile: The device did not answer.",
        "flat: one candidate could not go on, b at compile: No GPU.",
    )  # fmt: skip


def test_what_a_fault_left_unmeasured_is_no_saving() -> None:
    asked = tuple(each for each in FLAT_PASS.asked if each.id != "c" or each.rung == "compile")
    lost = tuple(
        each.model_copy(update={"outcome": None, "said": "No answer."}) if each.id == "c" else each for each in asked
    )
    faulty = FLAT_PASS.model_copy(update={"rule": "halving", "asked": lost})
    report = reported(FLAT_PASS, faulty)
    assert report.why_partial == ("halving: c met a fault at compile: No answer.",)
    assert report.notes == ()
    (row,) = [row for row in report.compared if row.rule == "halving"]
    assert (row.partial, row.gpu_s_ratio_flat) == (True, None)
    of_flat = reported(FLAT_PASS.model_copy(update={"asked": lost}), halved("b", "c"))
    assert [row.gpu_s_ratio_flat for row in of_flat.compared if row.rule == "halving"] == [None]


def test_a_stream_without_a_right_candidate_and_time_lost_to_others_are_noted() -> None:
    asked = tuple(
        each.model_copy(update={"queue_s": 3.0, "wall_s": 4.0}) for each in FLAT_PASS.asked if each.rung == "compile"
    )
    assert reported(FLAT_PASS.model_copy(update={"asked": asked})).notes == (
        "no candidate came to a precise timing in the flat pass: there was nothing to find",
        "flat: 9.0 of 12.0 s went by waiting for the device, which others used",
    )  # fmt: skip


def test_a_report_is_read_back_as_it_was_written_and_drawn(tmp_path: Path) -> None:
    report = whole(reported(FLAT_PASS, halved("b", "c")))
    (tmp_path / "report.json").write_text(report.model_dump_json(indent=1))
    assert read_report(tmp_path / "report.json") == report
    assert draw(tmp_path / "report.json", tmp_path / "plots") == 0
    assert "halving, live" in (tmp_path / "plots" / "s.svg").read_text("utf-8")


def test_a_report_from_elsewhere_does_not_choose_where_plots_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("../out", str(tmp_path / "out"), "a\0b"):
        elsewhere = reported(FLAT_PASS).model_copy(update={"stream": name})
        (tmp_path / "report.json").write_text(whole(elsewhere).model_dump_json())
        assert draw(tmp_path / "report.json", tmp_path / "plots") == 2
        assert "is no name for the file of a plot" in capsys.readouterr().err


def test_a_stream_with_dollars_in_its_name_is_drawn_as_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(
        whole(reported(FLAT_PASS).model_copy(update={"stream": r"a$\frac$b"})).model_dump_json()
    )
    assert draw(tmp_path / "report.json", tmp_path) == 0
    assert r"a$\frac$b on" in (tmp_path / r"a$\frac$b.svg").read_text("utf-8")


def test_without_matplotlib_it_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text(whole(reported(FLAT_PASS)).model_dump_json())
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "pip install 'kernelgate[plots]'" in plots.why_not()
    assert draw(tmp_path / "report.json", tmp_path) == 2
    assert "kernelgate bench plot REPORT -o DIR" in capsys.readouterr().err


def test_a_stream_in_which_nothing_was_timed_has_no_plot(tmp_path: Path) -> None:
    cut = FLAT_PASS.model_copy(update={"asked": FLAT_PASS.asked[:2], "ended": "it was interrupted"})
    assert plots.draw(whole(reported(cut)), tmp_path) == []


def test_the_server_has_caps_that_are_enough_and_the_prices_and_rules_of_its_owner(tmp_path: Path) -> None:
    candidates = read_stream(stream(tmp_path))
    mine = Policy(prices={"quick_time": Price(first_hold_s=3.5)}, rules={"halving": {"eta": 4.0}})
    text = policy_text(mine, caps_for(candidates))
    policy = policy_of(text, tmp_path / "kernelgate.toml")
    assert policy.prices == mine.prices
    assert policy.rules == mine.rules
    assert policy.caps.precise_calls >= 2 * len(candidates.lines)
    assert policy.caps.override_calls == 0
    settings = Settings(data_dir=tmp_path, device="cpu", policy=mine)
    server = server_on(settings, tmp_path / "of one stream", [tmp_path / "tasks"], candidates)
    assert tomllib.loads((tmp_path / "of one stream" / "kernelgate.toml").read_text())["caps"]["deadline_s"] == 1e7
    assert server.args[-4:] == ["--device", "cpu", "--tasks", str(tmp_path / "tasks")]


def test_the_streams_of_these_tests_are_in_an_order_in_which_quick_ranks_badly() -> None:
    assert max(QUICK, key=QUICK.__getitem__) != max(PRECISE, key=PRECISE.__getitem__) == WORSE

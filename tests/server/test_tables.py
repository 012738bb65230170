"""Tables on a narrow terminal: what is copied stays whole, prose wraps between words, and nothing is lost."""

import io

import pytest
from rich.console import Console

from kernelgate.budget.model import Rung, Verdict
from kernelgate.budget.records import RunRecord
from kernelgate.budget.report import FunnelRow, LeaderboardRow
from kernelgate.server.demo.script import IDEAS
from kernelgate.server.tables import (
    PROSE,
    Listing,
    candidates_table,
    funnel_table,
    leaderboard_table,
    runs_table,
    tasks_table,
)  # fmt: skip
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tools.kit.book import CandidateRow

NOTE = "log-softmax, then one exponential of everything that is left in registers"
LONG_TASK = "kernelbench/level2/13_ConvTranspose3d_Mean_Add_Softmax_Tanh_Scaling"


def leader(place: int, verdict: Verdict, precise: Verdict | None = None) -> LeaderboardRow:
    return LeaderboardRow(
        place=place, candidate_id=f"c{1000 + place}", parent_id=None, language="torch", note=NOTE,
        precise_verdict=precise, precise_ratio=None, precise_low=None, precise_high=None,
        quick_verdict=verdict, quick_ratio=12.345, quick_low=11.06, quick_high=13.69, device_s=1.0,
    )  # fmt: skip


def candidate(verdict: Verdict) -> CandidateRow:
    return CandidateRow(
        candidate_id="c1234", parent_id="c1233", note=NOTE, language="torch", furthest="precise",
        verdict=verdict.value, ratio=12.345, ratio_rung="quick", spent_s=123.45,
    )  # fmt: skip


def run(task: str, closed: str | None, account: str = "local") -> RunRecord:
    return RunRecord.model_construct(
        run_id="r123", account_id=account, task_name=task, rule="threshold", device_kind="cuda",
        client_name="claude-code", created_utc="2026-11-30T10:05:59.123456Z", closed=closed,
    )  # fmt: skip


FUNNEL = [
    FunnelRow(
        rung=rung, entered=100, passed=80, failed=10, refused=10, refusals=9, calls=90, replays=90, device_s=115.178
    )
    for rung in Rung
]
TABLES = {
    "leaderboard": leaderboard_table([leader(place, verdict) for place, verdict in enumerate(Verdict, 1)]),
    "leaderboard with failures": leaderboard_table([leader(1, Verdict.maybe_faster, Verdict.input_mutation)]),
    "leaderboard of the demo": leaderboard_table(
        [leader(place, Verdict.clearly_slower) for place, _ in enumerate(IDEAS, 1)],
        {f"c{1000 + place}": idea.name for place, idea in enumerate(IDEAS, 1)},
    ),
    "candidates": candidates_table(map(candidate, Verdict)),
    "funnel": funnel_table(FUNNEL),
    "runs": runs_table([run("softmax", None), run("layernorm_residual", "closed by the user")]),
    "tasks": tasks_table(Catalogue().entries()),
}


def printed(table: Listing, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, soft_wrap=True).print(table)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_fits_eighty_columns_and_breaks_no_word(name: str) -> None:
    lines = printed(TABLES[name])
    assert max(map(len, lines)) <= 80
    words = "\n".join(lines).split()
    for cell in (cell for row in TABLES[name].rows for cell in row):
        assert set(cell.split()) <= set(words), cell


@pytest.mark.parametrize("name", TABLES)
def test_what_is_no_prose_stands_on_one_line(name: str) -> None:
    table = TABLES[name]
    text = "\n".join(printed(table))
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            assert column in PROSE or cell in text


@pytest.mark.parametrize("name", ["leaderboard", "candidates"])
def test_a_long_note_is_cut_between_words_and_says_so(name: str) -> None:
    for *_, note in TABLES[name].rows:
        *words, end = note.split()
        assert end == "…"
        assert words == NOTE.split()[: len(words)]


def test_a_name_that_is_too_long_makes_the_line_longer_and_stays_whole() -> None:
    lines = printed(runs_table([run(LONG_TASK, "expired: no work for 24 h")]))
    assert any(LONG_TASK in line and "2026-11-30 10:05" in line for line in lines)


def test_whose_a_run_is_stands_there_where_some_are_of_accounts_with_tokens() -> None:
    several = runs_table([run("softmax", None), run("softmax", None, "alice")])
    assert [row[0] for row in several.rows] == ["local", "alice"]
    assert runs_table([run("softmax", None, "alice")]).columns[0] == "account"
    assert "account" not in runs_table([run("softmax", None)]).columns


def test_a_word_without_end_is_broken_and_not_lost() -> None:
    endless = "x" * 200
    lines = printed(Listing("t", ("id", "idea"), (("c1", endless),)))
    assert max(map(len, lines)) <= 80
    assert "".join("".join(lines).split()).count("x") == 200


def test_text_from_outside_neither_steers_the_terminal_nor_is_read_as_markup() -> None:
    lines = printed(Listing("t", ("id", "idea"), (("c1", "a\x1b[2J\nb [red]c[/red] \u202ed"),)))
    assert any("a [2J b [red]c[/red] d" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_a_table_without_rows_shows_its_columns() -> None:
    assert printed(runs_table([]))[:2] == ["Runs", "run  task  rule  on  client  created  state"]

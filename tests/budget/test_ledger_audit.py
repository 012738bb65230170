"""Forgeries: a person with write access to the file changes it after taking the triggers away."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from book_scenario import OWNER, Scenario, result_input
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.budget.audit import AuditReport, Finding, audit, rendered
from kernelgate.budget.chain import EVENT_COLUMNS, HASHED_COLUMNS, event_hash, event_text
from kernelgate.budget.errors import BookNotFound, UnknownId
from kernelgate.budget.model import Amount, Rung
from kernelgate.budget.purse import purse_text
from kernelgate.budget.records import Head, InUse
from kernelgate.budget.rows import RowText
from kernelgate.budget.rules.halving import DEFAULTS, HalvingSeen
from kernelgate.budget.triggers import GENESIS_HASH, expected_triggers
from kernelgate.tasks.model import canonical_json


@pytest.fixture
def book(tmp_path: Path) -> Scenario:
    book = Scenario(tmp_path / "book.db", rule="halving")
    book.measure(book.climb(Rung.quick, ratio=1.5), Rung.precise)
    book.refused(book.candidate(), Rung.check)
    return book


def forge(book: Scenario, *statements: str, rehash: bool = False) -> AuditReport:
    """Run statements without triggers, put the triggers back, and audit."""
    connection = sqlite3.connect(book.path, isolation_level=None)
    for name in expected_triggers():
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    if rehash:
        recompute_chain(connection)
    for text in expected_triggers().values():
        connection.execute(text)
    connection.close()
    return audit(book.path)


def recompute_chain(connection: sqlite3.Connection) -> None:
    previous = GENESIS_HASH
    for row in connection.execute(f"SELECT {', '.join(EVENT_COLUMNS)} FROM events ORDER BY seq").fetchall():
        columns = dict(zip(EVENT_COLUMNS[:-2], row, strict=False))
        digest = event_hash(previous, tuple(columns[name] for name in HASHED_COLUMNS))
        connection.execute(
            "UPDATE events SET prev_hash = ?, hash = ? WHERE seq = ?", (previous, digest, columns["seq"])
        )
        previous = digest


def said(report: AuditReport, part: str) -> bool:
    return not report.ok and any(part in finding.what for finding in report.findings)


def test_an_honest_book_passes_and_is_counted(book: Scenario) -> None:
    report = audit(book.path, head=book.ledger.head())
    assert report.ok, report.findings
    assert report.head == book.ledger.head()
    assert (report.counts["runs"], report.counts["results"], report.counts["decisions"]) == (1, 4, 1)


def test_one_run_can_be_audited_alone(book: Scenario) -> None:
    assert audit(book.path, run="r1").ok
    with pytest.raises(UnknownId, match="unknown run 'r7'"):
        audit(book.path, run="r7")


def test_a_missing_book_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(BookNotFound, match="There is no book"):
        audit(tmp_path / "none.db")


def test_an_edited_event_is_found(book: Scenario) -> None:
    assert said(forge(book, "UPDATE events SET reason = 'nicer' WHERE kind = 'refuse'"), "changed after it was written")


def test_a_deleted_event_is_found(book: Scenario) -> None:
    report = forge(book, "DELETE FROM events WHERE seq = 4")
    assert said(report, "Event 4 is missing")
    assert said(report, "Event 5 does not have the hash of its predecessor")


@pytest.mark.parametrize("statement", [
    "UPDATE events SET work_s = work_s / 2, purse_json = replace(purse_json, '0.1', '0.2') WHERE seq = 4",
    "DELETE FROM events WHERE seq = 4",
    "UPDATE events SET seq = CASE seq WHEN 4 THEN -4 ELSE 4 END WHERE seq IN (4, 6)",
])  # fmt: skip
@pytest.mark.parametrize("limit", [3, 200])
def test_what_was_done_to_a_row_is_told_before_what_follows_from_it(
    book: Scenario, statement: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelgate.budget.audit.FINDINGS_LIMIT", limit)
    report = forge(book, "PRAGMA ignore_check_constraints = ON", statement)
    topics = [each.topic for each in report.findings]
    assert topics[0] == "chain"
    assert topics == sorted(topics, key=lambda topic: topic == "run")
    assert len(topics) == min(limit, report.counts["findings"])
    assert report.counts["findings"] > topics.count("chain")
    told = [line for line in rendered(report).splitlines() if line.startswith("- ")]
    assert [line.split()[1].rstrip(":") for line in told] == topics


def test_a_promotion_that_no_rule_granted_is_found_even_with_a_decision_of_its_own(book: Scenario) -> None:
    """Somebody lets a candidate into precise with a decision that replays to itself, and rehashes the chain."""
    slow = book.climb(Rung.quick, ratio=0.7)
    refused = book.refused(slow, Rung.precise)
    assert refused.decision is not None
    granted = refused.decision.saw | {"rank": 1, "own_verdict": "maybe_faster"}
    forged = book.ledger.rules["halving"].decide_from(HalvingSeen.model_validate(granted, strict=False), DEFAULTS)
    assert forged.admit
    text = forged.model_dump_json().replace("'", "''")
    purse = purse_text(refused.purse.holding(Rung.precise, Amount(calls=1, cpu_s=1.0)))
    report = forge(
        book,
        f"""UPDATE events SET kind = 'hold', refusal_kind = NULL, reason = '', missing = '', calls = 1, cpu_s = 1.0,
        decision_json = '{text}', purse_json = '{purse}' WHERE seq = {refused.seq}""",
        rehash=True,
    )
    assert [(each.seq, each.what) for each in report.findings] == [
        (refused.seq, f"What the decision of event {refused.seq} says it saw is not what the book said then.")
    ]


@pytest.mark.parametrize(("statement", "part"), [
    ("UPDATE events SET reason = 'nicer' WHERE kind = 'refuse'", "changed after it was written"),
    ("DELETE FROM events WHERE seq = 4", "Event 4 is missing"),
    ("UPDATE samples SET samples_us = x'0000803f0000803f0000803f'", "do not have the digest"),
])  # fmt: skip
def test_a_long_book_is_read_by_two_processes_which_find_the_same(
    book: Scenario, statement: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = forge(book, statement)
    monkeypatch.setattr("kernelgate.budget.audit.LONG_BOOK", 0)
    together = audit(book.path)
    assert said(together, part)
    assert together == alone


def test_a_long_book_is_audited_whole_where_the_host_lets_no_second_process_live(
    book: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dead(ThreadPoolExecutor):
        def submit(self, *work: object) -> Future[None]:
            broken: Future[None] = Future()
            broken.set_exception(BrokenProcessPool())
            return broken

    monkeypatch.setattr("kernelgate.budget.audit.LONG_BOOK", 0)
    monkeypatch.setattr("kernelgate.budget.audit._process", lambda: Dead(max_workers=1))
    assert audit(book.path).ok
    assert said(forge(book, "DELETE FROM events WHERE seq = 4"), "Event 4 is missing")


CELLS = {
    str: st.text(), int: st.integers(0, 2**62), float: st.floats(0.0, 1e15),
}  # fmt: skip
NULLABLE = ("candidate_id", "decision_json", "environment_id", "job_id", "purse_json", "refusal_kind", "rows_sha256",
            "run_id", "rung")  # fmt: skip
NUMBERS = {"seq": int, "hold_seq": int, "calls": int, "override_calls": int, "gpu_s": float, "cpu_s": float,
           "work_s": float, "overrun_s": float, "monotonic_s": float}  # fmt: skip


@given(
    st.fixed_dictionaries(
        {
            name: CELLS[NUMBERS.get(name, str)] | (st.none() if name in (*NULLABLE, "hold_seq") else st.nothing())
            for name in HASHED_COLUMNS
        }
    )
)
def test_the_text_that_is_hashed_is_canonical_json_whatever_stands_in_the_cells(event: dict[str, str | float]) -> None:
    assert event_text(tuple(event[name] for name in HASHED_COLUMNS)) == canonical_json(event)
    assert RowText(event).of([event[name] for name in HASHED_COLUMNS]) == canonical_json(event)


def test_swapped_events_are_found(book: Scenario) -> None:
    swap = ("UPDATE events SET seq = 0 WHERE seq = 4", "UPDATE events SET seq = 4 WHERE seq = 5",
            "UPDATE events SET seq = 5 WHERE seq = 0")  # fmt: skip
    report = forge(book, *swap)
    assert said(report, "Event 4 was written as event 5: rows were put in another order")
    assert said(report, "Event 5 was written as event 4")


def test_an_end_that_was_cut_off_shows_against_a_head_that_was_kept(book: Scenario) -> None:
    kept = book.ledger.head()
    forge(book, f"DELETE FROM events WHERE seq = {kept.seq}")
    assert audit(book.path).ok  # the file alone cannot show it
    assert said(audit(book.path, head=kept), "cut off")


def test_a_wholly_rehashed_book_shows_against_a_head_that_was_kept(book: Scenario) -> None:
    kept = book.ledger.head()
    forge(book, "UPDATE events SET created_utc = '2020' WHERE seq = 1", rehash=True)
    assert audit(book.path).ok
    assert said(audit(book.path, head=kept), "rewritten")
    assert said(audit(book.path, head=Head(seq=2, hash="f" * 64)), "rewritten")


FORGERIES: list[tuple[str, str]] = [
    ("UPDATE events SET cpu_s = 9.0 WHERE kind = 'settle' AND rung = 'precise'", "charges more than hold"),
    ("UPDATE events SET calls = 0 WHERE kind = 'settle' AND rung = 'precise'", "charges other calls"),
    ("UPDATE events SET purse_json = json_set(purse_json, '$.settled.device_s', 0.0)", "is not what the events before"),
    ("UPDATE events SET decision_json = json_set(decision_json, '$.saw.rank', 7) WHERE seq > 1", "saw is not what"),
    ("UPDATE events SET decision_json = json_set(decision_json, '$.why', 'x') WHERE seq > 1", "does not replay"),
    ("UPDATE events SET decision_json = NULL", "needs a decision"),
    ("UPDATE events SET rung = 'profile' WHERE kind = 'hold' AND rung = 'check'", "without having passed quick"),
    ("UPDATE events SET hold_seq = 1 WHERE kind = 'settle' AND rung = 'check'", "which this run does not have"),
    ("UPDATE results SET ratio = 9.0, ratio_high = 10.0 WHERE rung = 'precise'", "do not have the digest"),
    ("UPDATE results SET verdict = 'slower' WHERE rung = 'precise'", "do not have the digest"),
    ("UPDATE samples SET samples_us = x'0000803f0000803f0000803f'", "do not have the digest"),
    ("DELETE FROM samples WHERE side = 'candidate'", "do not have the digest"),
    ("DELETE FROM results WHERE rung = 'compile'", "has no result"),
    ("UPDATE candidates SET files_json = '{}'", "does not have its digest"),
    ("UPDATE tasks SET spec_json = json_set(spec_json, '$.source', 'x')", "does not have its digest"),
    ("UPDATE environments SET facts_json = '{}'", "do not have its id"),
    ("UPDATE runs SET budget_json = json_set(budget_json, '$.device_s', 1e6)", "is not what the events before"),
    ("UPDATE runs SET budget_json = json_set(budget_json, '$.device_s', 0.25)", "than were granted"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "part"), FORGERIES)
def test_a_forgery_is_found_even_when_the_chain_was_recomputed(book: Scenario, statement: str, part: str) -> None:
    assert said(forge(book, statement, rehash=True), part)


@pytest.fixture
def overrun(tmp_path: Path) -> Scenario:
    """A book in which a call outlasted its hold, on the device and in work."""
    book = Scenario(tmp_path / "book.db")
    hold = book.hold(book.climb(Rung.compile), Rung.check, cpu_s=1.0, work_s=1.0)
    book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=1.5, work_s=3.0), result_input(Rung.check))
    return book


OVERRUNS: list[tuple[str, str]] = [
    ("UPDATE events SET cpu_s = 0.25 WHERE kind = 'overrun'", "is not what settle"),
    ("UPDATE events SET account_id = 'local' WHERE kind = 'overrun'", "not on the house"),
    ("UPDATE events SET hold_seq = 2 WHERE kind = 'overrun'", "does not follow the end"),
    ("UPDATE events SET overrun_s = 77.0 WHERE kind = 'overrun'", "two amounts of device seconds"),
    ("UPDATE events SET rung = 'precise' WHERE kind = 'overrun'", "of another call than hold"),
    ("UPDATE events SET environment_id = NULL WHERE kind = 'overrun'", "of another call than hold"),
    ("DELETE FROM events WHERE kind = 'overrun'", "is not booked on the house"),
    ("UPDATE events SET cpu_s = 0.5, overrun_s = 1.0 WHERE kind = 'settle' AND rung = 'check'", "lays on the house"),
    ("UPDATE events SET work_s = 0.5 WHERE kind = 'settle' AND rung = 'check'", "lays work on the house"),
    ("UPDATE events SET reason = 'cancelled' WHERE kind = 'settle' AND rung = 'check'", "says cancelled, and"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "part"), OVERRUNS)
def test_a_forged_overrun_is_found_even_when_the_chain_was_recomputed(
    overrun: Scenario, statement: str, part: str
) -> None:
    assert audit(overrun.path).ok
    assert said(forge(overrun, statement, rehash=True), part)


@pytest.fixture
def lost(tmp_path: Path) -> Scenario:
    """A book in which the owner of a call was lost after it had used some of the device."""
    book = Scenario(tmp_path / "book.db")
    hold = book.hold(book.climb(Rung.compile), Rung.check, cpu_s=1.0)
    used = InUse(job_id=book.job_record.job_id, hold_seq=hold.hold_seq, device_s=0.75)
    book.ledger.heartbeat(OWNER, [used])
    book.ledger.sweep(lambda owner, quiet_s: False)
    return book


LOST: list[tuple[str, str]] = [
    ("UPDATE events SET cpu_s = 0.25 WHERE kind = 'overrun'", "does not say that it is estimated and how much"),
    (
        "UPDATE events SET reason = 'owner_lost' WHERE kind IN ('overrun', 'release')",
        "does not say that it is estimated",
    ),
    ("UPDATE events SET reason = 'fault_of_ours' WHERE kind = 'overrun'", "for the reason of release"),
    ("UPDATE events SET work_s = 1.0 WHERE kind = 'overrun'", "is not time of the device"),
    ("UPDATE events SET account_id = 'local' WHERE kind = 'overrun'", "not on the house"),
    ("DELETE FROM events WHERE kind = 'overrun'", "is not booked on the house"),
    (
        """UPDATE events SET reason = 'owner_lost: gone; estimated: 90.000 s of the device by its last heartbeat',
        cpu_s = iif(kind = 'overrun', 90.0, cpu_s), overrun_s = iif(kind = 'overrun', 90.0, 0.0)
        WHERE kind IN ('overrun', 'release')""",
        "says that 90.000 s of the device were used under hold",
    ),
    (
        """UPDATE events SET reason = 'fault_of_ours: the referee died',
        cpu_s = iif(kind = 'overrun', 90.0, cpu_s), overrun_s = iif(kind = 'overrun', 90.0, 0.0)
        WHERE kind IN ('overrun', 'release')""",
        "which was open for 0.0",
    ),
]


@pytest.mark.parametrize(("statement", "part"), LOST)
def test_a_forged_estimate_of_what_a_lost_owner_used_is_found(lost: Scenario, statement: str, part: str) -> None:
    assert audit(lost.path).ok
    assert said(forge(lost, statement, rehash=True), part)


def test_a_book_from_before_work_above_a_hold_was_booked_still_holds(overrun: Scenario) -> None:
    only_device = "UPDATE events SET work_s = 0.0 WHERE kind = 'overrun'"
    assert forge(overrun, only_device, rehash=True).ok


def test_a_result_that_nothing_paid_for_is_found(book: Scenario) -> None:
    columns = ", ".join(row["name"] for row in book.ledger.query("PRAGMA table_info(results)"))
    values = columns.replace("result_id", "NULL").replace("event_seq", "999")
    report = forge(book, f"INSERT INTO results ({columns}) SELECT {values} FROM results WHERE rung = 'precise'")
    assert said(report, "no event that paid for it")


def test_a_missing_or_altered_trigger_is_found(book: Scenario) -> None:
    connection = sqlite3.connect(book.path, isolation_level=None)
    connection.execute("DROP TRIGGER events_refuse_update")
    connection.execute("DROP TRIGGER results_refuse_delete")
    connection.execute("CREATE TRIGGER results_refuse_delete BEFORE DELETE ON results BEGIN SELECT 1; END")
    connection.close()
    report = audit(book.path)
    assert said(report, "events_refuse_update is gone")
    assert said(report, "results_refuse_delete does not have the text")


def replace_last(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO events SELECT * FROM events ORDER BY seq DESC LIMIT 1")


def replace_end_of_hold(connection: sqlite3.Connection) -> None:
    row = connection.execute(f"SELECT {', '.join(EVENT_COLUMNS)} FROM events WHERE kind = 'settle'").fetchone()
    seq, last = connection.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    values = (seq + 1, *row[1:-2], last, "0" * 64)
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT OR REPLACE INTO events ({', '.join(EVENT_COLUMNS)}) VALUES ({marks})", values)


ATTACKS: list[Callable[[sqlite3.Connection], object]] = [
    lambda c: c.execute("UPDATE events SET gpu_s = 0"),
    lambda c: c.execute("DELETE FROM events"),
    replace_last,
    replace_end_of_hold,
    lambda c: c.execute("UPDATE results SET verdict = 'faster'"),
    lambda c: c.execute("INSERT OR REPLACE INTO results SELECT * FROM results"),
    lambda c: c.execute("DELETE FROM samples"),
    lambda c: c.execute("INSERT OR REPLACE INTO samples SELECT * FROM samples"),
    lambda c: c.execute("INSERT OR REPLACE INTO candidates SELECT * FROM candidates"),
    lambda c: c.execute("INSERT OR REPLACE INTO tasks SELECT * FROM tasks"),
    lambda c: c.execute("INSERT OR REPLACE INTO environments SELECT * FROM environments"),
    lambda c: c.execute("UPDATE runs SET budget_json = '{}'"),
    lambda c: c.execute("INSERT OR REPLACE INTO runs SELECT * FROM runs"),
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_book_refuses_changes_even_by_insert_or_replace(
    book: Scenario, attack: Callable[[sqlite3.Connection], object]
) -> None:
    connection = sqlite3.connect(book.path, isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError, match=r"append-only|insert-only|next event|row exists"):
        attack(connection)
    connection.close()
    assert audit(book.path, head=book.ledger.head()).ok


def test_an_audit_sees_one_moment_while_others_write(book: Scenario) -> None:
    before = audit(book.path).head
    book.climb(Rung.check)
    assert audit(book.path, head=before).ok


def test_the_report_for_people_says_first_whether_the_book_holds() -> None:
    from kernelgate.budget.records import Head

    head = Head(seq=7, hash="0" * 64)
    good = AuditReport(ok=True, findings=(), counts={"events": 7}, head=head)
    bad = AuditReport(ok=False, findings=(Finding(topic="chain", seq=3, what="edited"),), counts={}, head=head)
    assert rendered(good).splitlines()[0].startswith("The book holds")
    assert "7 events" in rendered(good)
    assert rendered(bad).startswith("The book does not hold")
    assert "event 3" in rendered(bad)

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.budget.ladder.model import Line
from kernelgate.budget.ladder.stream import BadStream, parse_stream, read_stream
from kernelgate.tasks.model import MAX_SOURCE_BYTES

GOOD = '{"id": "a", "source": "x = 1"}'


def reason(text: str) -> str:
    with pytest.raises(BadStream) as caught:
        parse_stream(text, "softmax.jsonl", "softmax")
    return str(caught.value)


def test_a_stream_is_of_the_task_that_its_file_is_named_after_unless_another_is_given(tmp_path: Path) -> None:
    path = tmp_path / "softmax.jsonl"
    path.write_text('{"id": "a", "source": "x = 1"}\n\n{"id": "b", "parent": "a", "source": "", "note": "n"}\n')
    read = read_stream(path)
    assert (read.name, read.task) == ("softmax", "softmax")
    assert read.lines == (Line(id="a", source="x = 1"), Line(id="b", parent="a", source="", note="n"))
    assert read_stream(path, "rmsnorm").task == "rmsnorm"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: not JSON (Expecting property name enclosed in double quotes)."),
        ("[" * 100_000, "line 2: not JSON"),
        ("[1]", "line 2: not a JSON object with id and source."),
        ('{"id": "b", "source": "", "idea": 1}', "line 2: unknown field 'idea'; a line has id, parent, source, note."),
        ('{"id": "b"}', "line 2: source is missing."),
        ('{"source": ""}', "line 2: id is missing."),
        ('{"id": "", "source": ""}', "line 2: id: String should have at least 1 character."),
        ('{"id": 7, "source": ""}', "line 2: id: Input should be a valid string."),
        ('{"id": "a", "source": ""}', "line 2: id 'a' is that of line 1 too."),
        ('{"id": "b", "parent": "c", "source": ""}', "line 2: parent 'c' of 'b' is the id of no earlier line."),
        ('{"id": "b", "parent": "b", "source": ""}', "line 2: parent 'b' of 'b' is the id of no earlier line."),
        (r'{"id": "b", "source": "\ud800"}', "line 2: source of 'b': candidate.py is not valid UTF-8 text."),
        (
            r'{"id": "b", "source": "", "note": "\ud800"}',
            "line 2: note: Input should be a valid string, unable to parse",
        ),
        (r'{"id": "\ud800", "source": ""}', "line 2: id: Input should be a valid string, unable to parse"),
        (
            json.dumps({"id": "b", "source": "", "note": "n" * 2001}),
            "line 2: note: String should have at most 2000 characters.",
        ),
        (
            json.dumps({"id": "b", "source": "x" * (MAX_SOURCE_BYTES + 1)}),
            "line 2: source of 'b': the source has 524,289 bytes; at most 524,288 are taken.",
        ),
    ],
)
def test_a_wrong_line_is_told_with_its_number_in_one_sentence(line: str, said: str) -> None:
    told = reason(f"{GOOD}\n{line}\n")
    assert told.startswith(f"softmax.jsonl, {said}")
    assert "\n" not in told


@pytest.mark.parametrize("text", ["", "\n  \n"])
def test_an_empty_file_is_no_stream(text: str) -> None:
    assert reason(text) == "softmax.jsonl is empty: a stream has one candidate a line, as JSON with id and source."


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadStream, match="No such file or directory"):
        read_stream(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(GOOD.encode() + b'\n{"id": "\xe9"}')
    with pytest.raises(BadStream, match=r"^latin\.jsonl, line 2: not UTF-8 text\.$"):
        read_stream(tmp_path / "latin.jsonl")


def test_a_mark_in_front_and_returns_before_the_ends_of_lines_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "softmax.jsonl").write_bytes(b"\xef\xbb\xbf" + GOOD.encode() + b"\r\n")
    assert len(read_stream(tmp_path / "softmax.jsonl").lines) == 1


@pytest.mark.parametrize("name", [".jsonl", "...jsonl"])
def test_a_file_whose_name_would_be_no_folder_of_its_own_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(GOOD)
    with pytest.raises(BadStream, match=r"gives its stream no name: rename the file to NAME\.jsonl\.$"):
        read_stream(tmp_path / name, "softmax")


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8), st.data())
def test_what_is_written_as_a_stream_is_read_back(rows: list[tuple[str, str]], data: st.DataObject) -> None:
    lines: list[Line] = []
    for number, (source, note) in enumerate(rows):
        parent = data.draw(st.sampled_from([None, *(line.id for line in lines)]))
        lines.append(Line(id=f"k{number}", parent=parent, source=source, note=note))
    text = "\n".join(line.model_dump_json() for line in lines)
    assert list(parse_stream(text, "any.jsonl", "any").lines) == lines


@given(st.text(max_size=60))
def test_any_text_is_a_stream_or_one_sentence(text: str) -> None:
    said = ""
    try:
        parse_stream(text, "any.jsonl", "any")
    except BadStream as error:
        said = str(error)
    assert "\n" not in said
    assert not said or said.endswith(".")

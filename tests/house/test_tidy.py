"""The house's own questions, asked of texts with a known answer: a check that finds nothing ever is no check."""

import pytest
import tidy


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX", "HACK"])
def test_a_note_to_oneself_is_found(word: str) -> None:
    assert tidy.leftovers(f"x = 1\n# {word}: later\n") == [tidy.Place(2, f"# {word}: later")]


def test_words_that_only_contain_such_a_note_are_left_alone() -> None:
    assert tidy.leftovers("method = 'HACKNEY'\ntodos = 1\n") == []


OFF = "noqa"
TYPED = "type: ignore"


@pytest.mark.parametrize(
    "line", [f"x = 1  # {OFF}", f"x = 1  # {OFF}: T201", f"x = 1  # {TYPED}", f"x  # {TYPED}[attr-defined]"]
)
def test_a_check_switched_off_needs_code_and_reason(line: str) -> None:
    assert tidy.unexcused_ignores(line) == [tidy.Place(1, line)]


@pytest.mark.parametrize(
    "line",
    [
        f"x = 1  # {OFF}: T201 -- printed for the user",
        f"x = 1  # {OFF}: T201, ERA001  # two of them",
        f"x = 1  # {OFF}: T201  its only log",
        f"x = 1  # {TYPED}[import-untyped]  # ships no types",
    ],
)
def test_a_check_switched_off_with_code_and_reason_passes(line: str) -> None:
    assert tidy.unexcused_ignores(line) == []


@pytest.mark.parametrize(
    "line",
    ["cd /work/here", "/home/ann/x", "see pypi.org", "as in CONTRACT 4", "see DESIGN.md", "THREATS, section 2"],
)
def test_a_word_from_elsewhere_is_found(line: str) -> None:
    assert [place.line for place in tidy.words_from_elsewhere(line)] == [1]


@pytest.mark.parametrize(
    "line", ["~/.config/work/x", "tests/work/x", "COVERED = ('/home', '/root')", "by DESIGN of 1979"]
)
def test_ordinary_words_are_left_alone(line: str) -> None:
    assert tidy.words_from_elsewhere(line) == []


def test_functions_are_measured_with_their_place_in_the_file() -> None:
    text = "class A:\n    def f(self):\n        def g():\n            1\n        return g\nasync def h():\n    1\n"
    assert tidy.function_lengths(text) == {"A.f": 4, "A.f.g": 2, "h": 2}


def test_public_names_without_docstring_are_found_and_private_ones_left_alone() -> None:
    methods = "    def f(self): ...\n    def _g(self): ...\n    def __len__(self): ...\n"
    text = f'"""M."""\nclass A:\n    """A."""\n{methods}def h(): ...\n'
    assert tidy.without_docstring(text) == [tidy.Place(4, "A.f"), tidy.Place(7, "h")]


def test_a_module_without_docstring_is_found_unless_it_is_empty() -> None:
    assert tidy.without_docstring("x = 1\n") == [tidy.Place(1, "the module")]
    assert tidy.without_docstring("") == []


def test_an_error_swallowed_whole_is_found_and_a_named_one_left_alone() -> None:
    whole = "try:\n    f()\nexcept Exception:\n    pass\n"
    assert [place.line for place in tidy.swallowed_errors(whole)] == [3]
    assert tidy.swallowed_errors(whole.replace("Exception", "KeyError")) == []


def test_a_test_in_which_nothing_can_fail_is_found() -> None:
    text = (
        "def test_a():\n    f()\n\ndef test_b():\n    assert f()\n\ndef test_c():\n    with raises(E):\n        f()\n"
    )
    assert tidy.tests_without_assertion(text) == [tidy.Place(1, "test_a")]

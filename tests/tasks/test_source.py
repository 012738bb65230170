"""A reference file is read, overridden and made smaller as text, never run."""

import ast
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tasks.model import Override
from kernelgate.tasks.source import (
    MAX_SHRINK_STEPS,
    SourceError,
    constants,
    even_steps,
    halvable_constants,
    imported_modules,
    missing_pieces,
    shrink_steps,
    with_overrides,
)

REFERENCE = '''"""é: a byte offset is not a character offset."""
import torch
from torch import nn

rows, cols = 4096, 8192
heads = 2 * 4
width = cols // heads
shape = (rows, cols)
sizes = [
    1,
    2,
]  # a list over several lines
label: str = "ü"; depth = 3
slope = -0.5


class Model(nn.Module):
    def forward(self, x):
        return x * slope


def get_inputs():
    return [torch.rand(rows, cols, width)]


def get_init_inputs():
    return []
'''


def executed(source: str) -> dict[str, object]:
    """The top-level assignments alone, run."""
    tree = ast.parse(source)
    tree.body = [statement for statement in tree.body if isinstance(statement, ast.Assign | ast.AnnAssign)]
    namespace: dict[str, object] = {}
    exec(compile(tree, "reference", "exec"), namespace)
    return namespace


def test_constants_are_literals_and_arithmetic_over_them_but_nothing_derived_from_names():
    assert constants(REFERENCE) == {
        "rows": 4096, "cols": 8192, "heads": 8, "sizes": (1, 2), "label": "ü", "depth": 3, "slope": -0.5,
    }  # fmt: skip


def test_the_last_assignment_of_a_constant_counts_and_one_changed_in_place_is_none():
    assert constants("N = 1\nN = 2\nK = 3\nK *= 2\nM = 4\nM = N") == {"N": 2}


def test_arithmetic_that_would_never_end_is_not_followed():
    assert constants("A = 9 ** 9 ** 9 ** 9\nB = 2 ** 20\nC = 1 / 0\nD = 1e999") == {"B": 1 << 20}


def test_a_constant_derived_from_an_overridden_one_follows_it():
    names = executed(with_overrides(REFERENCE, {"cols": 64, "heads": 4}))
    assert (names["rows"], names["cols"], names["width"], names["shape"]) == (4096, 64, 16, (4096, 64))


def test_a_derived_constant_can_itself_be_overridden():
    assert executed(with_overrides(REFERENCE, {"width": 5}))["width"] == 5


def test_an_override_leaves_every_line_where_it_was_and_every_other_byte_as_it_was():
    changed = with_overrides(REFERENCE, {"sizes": (7, 8, 9), "label": "x", "depth": 4})
    assert executed(changed)["sizes"] == [7, 8, 9]
    assert (executed(changed)["label"], executed(changed)["depth"]) == ("x", 4)
    assert changed.index("class Model") > 0
    assert [line for line in changed.split("\n") if line.startswith("slope")] == ["slope = -0.5"]
    assert changed.count("\n") == REFERENCE.count("\n")
    assert changed.split("\n")[15:] == REFERENCE.split("\n")[15:]


def test_a_file_with_dos_line_endings_is_overridden_in_the_right_place():
    names = executed(with_overrides("A = 1\r\nB = A + 1\r\n", {"A": 5}))
    assert (names["A"], names["B"]) == (5, 6)


def test_an_unknown_override_is_an_error_that_lists_the_names():
    with pytest.raises(SourceError, match=r"no constant 'row' .* there are: rows, cols, heads, width, shape"):
        with_overrides(REFERENCE, {"row": 1})


def test_two_overrides_that_meet_in_one_assignment_are_an_error_unless_they_agree():
    assert executed(with_overrides("a = b = 3", {"a": 4, "b": 4}))["b"] == 4
    with pytest.raises(SourceError, match="shares its assignment"):
        with_overrides("a = b = 3", {"a": 4, "b": 5})
    with pytest.raises(SourceError, match="share parts of one assignment"):
        with_overrides("s = a, b = 1, 2", {"a": 4, "s": (5, 6)})


@pytest.mark.parametrize("value", [float("inf"), float("nan"), (1, float("-inf"))])
def test_a_value_that_is_not_finite_is_refused(value: Override):
    with pytest.raises(SourceError, match="finite"):
        with_overrides(REFERENCE, {"rows": value})


scalars = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


@given(st.dictionaries(st.sampled_from(["rows", "depth", "slope", "label", "shape"]), values))
def test_whatever_is_overridden_is_what_the_file_then_says(overrides: dict[str, Override]):
    changed = with_overrides(REFERENCE, overrides)
    names = executed(changed.replace("width = cols", "width = 0 and cols"))
    for name, value in overrides.items():
        assert names[name] == value
        assert type(names[name]) is type(value)
    assert changed.count("\n") == REFERENCE.count("\n")


@given(st.text())
def test_no_text_makes_the_reader_raise_anything_but_its_own_error(text: str):
    problems = missing_pieces(text)
    assert problems
    for read in (constants, imported_modules, lambda source: list(shrink_steps(source))):
        if problems[0].startswith("the reference defines no"):
            read(text)
        else:
            with pytest.raises(SourceError):
                read(text)


def test_what_is_missing_is_said_in_one_sentence_each():
    assert missing_pieces(REFERENCE) == []
    assert missing_pieces("x = (\n") == ["syntax error at line 1: '(' was never closed"]
    assert missing_pieces("A = 1\x00") != []
    assert missing_pieces("(" * 5000) != []
    assert missing_pieces("-" * 100_000 + "1") != []
    assert missing_pieces("class Model: ...\ndef get_init_inputs(): return []") == [
        "the reference defines no function get_inputs()"
    ]
    assert missing_pieces("") == [
        "the reference defines no class Model",
        "the reference defines no function get_inputs()",
        "the reference defines no function get_init_inputs()",
    ]
    assert missing_pieces(REFERENCE + "from .helper import f\n") == [
        "line 28 imports from a neighbouring file; a reference must be one file"
    ]


def test_a_class_bound_by_another_statement_counts():
    source = "try:\n    from m import Model\nexcept ImportError:\n    pass\nif True:\n    def get_inputs(): ...\n"
    assert missing_pieces(source + "get_init_inputs = list") == []


def test_imports_count_wherever_they_stand_unless_the_file_can_do_without():
    source = (
        "import torch.nn as nn, math\nfrom einops.layers import x\ndef f():\n    import numpy\n"
        "try:\n    import triton\nexcept ImportError:\n    triton = None\n"
    )
    assert imported_modules(source) == ("einops", "math", "numpy", "torch")


def test_the_largest_constants_are_halved_together_and_the_first_step_is_the_file_itself():
    source = (
        "batch = 16\nM = 1024 * 2\nK = 2048\nshape = (2048, 3)\nslope = 0.5\nunused = 10**9\nuse(batch, M, K, shape)"
    )
    steps = list(itertools.islice(shrink_steps(source), 3))
    assert steps == [
        {},
        {"M": 1024, "K": 1024, "shape": (1024, 3)},
        {"M": 512, "K": 512, "shape": (512, 3)},
    ]


def test_after_all_sizes_the_batch_alone_is_halved():
    source = "batch = 32\nwidth = 64\nuse(batch, width)"
    assert list(shrink_steps(source)) == [
        {}, {"width": 32}, {"batch": 16, "width": 16}, {"batch": 8, "width": 8},
        {"batch": 16}, {"batch": 8}, {"batch": 4}, {"batch": 2}, {"batch": 1},
    ]  # fmt: skip


def test_halved_all_at_once_sizes_keep_their_ratio_and_small_ones_stay():
    source = "batch = 32\nshape = (64, 3)\ngroups = 16\nslope = 0.5\nuse(batch, shape, groups, slope)"
    assert list(even_steps(source)) == [
        {"batch": 16, "shape": (32, 3), "groups": 8},
        {"batch": 8, "shape": (16, 3), "groups": 8},
        {"batch": 8, "shape": (8, 3), "groups": 8},
    ]
    assert list(even_steps("")) == []


@given(st.lists(st.integers(min_value=-(2**70), max_value=2**70), max_size=5))
def test_shrinking_ends_never_grows_and_never_falls_below_one(sizes: list[int]):
    names = [f"n{index}" for index in range(len(sizes))]
    source = (
        "".join(f"{name} = {size}\n" for name, size in zip(names, sizes, strict=True)) + f"use([{', '.join(names)}])"
    )
    original = constants(source)
    steps = list(shrink_steps(source))
    assert 1 <= len(steps) <= MAX_SHRINK_STEPS
    assert steps[0] == {}
    for step in steps[1:]:
        assert step
        for name, value in step.items():
            assert isinstance(value, int)
            assert 1 <= value < int(str(original[name]))
        with_overrides(source, step)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("batch = 32\nwidth = 64\nuse(batch, width)", ("batch", "width")),
        ("batch = 32\nshape = (3, 224)\nslope = 0.5\nuse(batch, shape, slope)", ("batch", "shape")),
        ("unused = 4096\nuse(4096)", ()),
        ("one = 1\nflag = True\nname = 'x'\nuse(one, flag, name)", ()),
        ("", ()),
    ],
)
def test_the_constants_that_can_be_halved_are_named(source: str, names: tuple[str, ...]):
    assert halvable_constants(source) == names

"""What counts as the same code, and what is told of a candidate's structure."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tasks.source_shape import shape_of

DEMO = Path(__file__).parents[2] / "server" / "demo" / "candidates"
ONE = '''"""A softmax."""
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n)
    tl.store(out + row * n + at, value, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024, num_warps=4)
        return out
'''
SAME = {
    "comments": ONE.replace("row = tl.", "# which row\n    row = tl.").replace("return out", "return out  # done"),
    "docstrings": ONE.replace('"""A softmax."""\n', "").replace("(self, x):\n", '(self, x):\n        """Go."""\n'),
    "blank lines and indentation": ONE.replace("\n\n\n", "\n").replace("    ", "  "),
    "line breaks": ONE.replace("rows[(x.shape[0],)](x, out,", "rows[(x.shape[0],)](\n            x,\n            out,"),
    "a last comma": ONE.replace("num_warps=4)", "num_warps=4,)"),
    "local names": ONE.replace("value", "v").replace(" row ", " line ").replace("BLOCK", "SIZE"),
    "the kernel's name": ONE.replace("rows", "softmax_kernel"),
    "an alias": ONE.replace("as tl", "as T").replace("tl.", "T."),
    "quotes": ONE.replace("import torch\n", "import torch\nmode = 'fast'\n"),
}  # fmt: skip
OTHER = {
    "a number": ONE.replace("1024", "2048"),
    "an attribute": ONE.replace("tl.store", "tl.stores"),
    "a builtin": ONE.replace("tl.arange(0, BLOCK)", "min(0, BLOCK)"),
    "an operator": ONE.replace("row * n + at, value", "row * n - at, value"),
    "swapped names": ONE.replace("(x, out, x.shape[1]", "(out, x, x.shape[1]"),
    "the entry's name": ONE.replace("ModelNew", "Model"),
    "the method's name": ONE.replace("def forward", "def backward"),
    "a tuple": ONE.replace("(x.shape[0],)", "(x.shape[0])"),
    "a text": ONE.replace("import torch\n", "import torch\nmode = 'slow'\n"),
}


def skeleton(text: str, **more: str) -> str:
    return shape_of({"candidate.py": text, **{f"{name}.cu": code for name, code in more.items()}}).skeleton


@pytest.mark.parametrize("what", SAME)
def test_sources_that_differ_only_in_this_are_the_same(what: str) -> None:
    original = ONE.replace("import torch\n", 'import torch\nmode = "fast"\n') if what == "quotes" else ONE
    assert SAME[what] != original
    assert skeleton(SAME[what]) == skeleton(original) != ""


@pytest.mark.parametrize("what", OTHER)
def test_sources_that_differ_in_this_are_not_the_same(what: str) -> None:
    assert OTHER[what] != ONE
    assert skeleton(OTHER[what]) != skeleton(ONE)


def test_a_function_that_is_only_called_is_no_local_name() -> None:
    assert skeleton("y = max(x)\n") != skeleton("y = min(x)\n")
    assert skeleton("import torch\ny = torch.exp(1)\n") != skeleton("import numpy\ny = numpy.exp(1)\n")


def test_loops_comprehensions_lambdas_and_several_targets_bind_names() -> None:
    first = "for i, (a, b) in z():\n    c, d = a, lambda e, *f: e\n    if (g := d): g[i] += [h for h in z()]\n"
    second = "for j, (k, l) in z():\n    m, n = k, lambda o, *p: o\n    if (q := n): q[j] += [r for r in z()]\n"
    assert skeleton(first) == skeleton(second)


def test_cuda_sources_are_compared_without_comments_and_layout() -> None:
    assert skeleton(ONE, kernel="int a; // one\n/* two */ int b;") == skeleton(ONE, kernel="int a;\n\n  int b;\n")
    assert skeleton(ONE, kernel='char *a = "// text";') != skeleton(ONE, kernel='char *a = "";')
    assert skeleton(ONE, kernel="int a;") != skeleton(ONE, kernel="int b;")


@pytest.mark.parametrize("text", ["def f(:\n", "x = (\n", '"""open', "a\n  b\n c\n", "\x00", "("])
def test_what_cannot_be_read_whole_is_the_same_as_nothing(text: str) -> None:
    shape_of({"candidate.py": text})
    whole = skeleton(f"{ONE}\n")
    assert skeleton(f"{ONE}\n{text}") in ("", skeleton(f"{ONE}\n{text}")) != whole


@given(st.text(alphabet=st.sampled_from("ab=.,:()[]{}\n \t'\"#@*x1forinlambdaf"), max_size=200))
def test_any_text_has_a_shape(text: str) -> None:
    assert shape_of({"candidate.py": text, "kernel.cu": text}).kernels >= 0


@pytest.mark.parametrize(
    "piece", ["(", "-", "a=", "for ", "lambda ", "def f(", "x,", "@", '"', "f'{", "lambda x,", "word", "/*", r"\""]
)
def test_what_is_nested_or_repeated_without_end_takes_no_more_than_its_length(piece: str) -> None:
    """Work that is quadratic in the length would hit the test's time-out."""
    found = shape_of({"candidate.py": piece * 4_000, "kernel.cu": piece * 4_000})
    assert found.tiles == ()


@pytest.mark.parametrize("file", sorted(DEMO.glob("*.txt")), ids=lambda file: file.stem)
def test_a_real_source_is_the_same_after_it_went_through_a_formatter(file: Path) -> None:
    text = file.read_text()
    if "typo" in file.stem:
        assert skeleton(f"x = (\n{text}") == ""
        return
    # ast.unparse drops comments, and writes layout and quotes its own way; redundant brackets it drops too.
    once = ast.unparse(ast.parse(text))
    assert skeleton(once) == skeleton("# a comment\n" + once.replace("    ", "\t"))


def test_structure_is_kernels_language_features_and_tile_shape() -> None:
    found = shape_of({"candidate.py": ONE})
    assert (found.language, found.kernels) == ("triton", 1)
    assert found.tiles == ("BLOCK 1024", "num_warps 4")
    matmul = shape_of({"candidate.py": (DEMO / "matmul_triton.txt").read_text()})
    assert matmul.tiles == ("BK 16", "BM 128", "BN 64", "GROUP 8", "num_stages 3", "num_warps 8")
    assert "tensor cores" in matmul.features
    inline = (
        'from torch.utils.cpp_extension import load_inline\nload_inline("k", cuda_sources=["__global__ void k() {}"])\n'
    )
    cuda = shape_of(
        {"candidate.py": inline, "k.cu": "#define TILE 32\n__global__ void f() { __shared__ float s[TILE]; }"}
    )
    assert (cuda.language, cuda.kernels, cuda.tiles) == ("cuda", 2, ("TILE 32",))
    assert "shared memory" in cuda.features


def test_words_in_comments_and_docstrings_tell_nothing() -> None:
    remarks = 'def f(x):\n    """Uses autotune and BLOCK = 64."""\n    return x  # softmax\n'
    found = shape_of({"candidate.py": remarks})
    assert (found.features, found.tiles) == ((), ())

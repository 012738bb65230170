import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernelgate.tasks.model import MAX_SOURCE_BYTES, Candidate
from kernelgate.tasks.source_scan import kernel_names


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"kernel.py": "x"}, "candidate.py"),
        ({"candidate.py": "x", "../up.py": "y"}, "../up.py"),
        ({"candidate.py": "x", "a/b.py": "y"}, "a/b.py"),
        ({"candidate.py": "x", ".hidden": "y"}, ".hidden"),
        ({"candidate.py": "x" * (MAX_SOURCE_BYTES + 1)}, "524,289 bytes"),
        ({"candidate.py": "\x01" * (MAX_SOURCE_BYTES // 2)}, "as JSON"),
        ({f"f{n}.py": "" for n in range(40)} | {"candidate.py": "x"}, "41 files"),
    ],
)
def test_a_candidate_that_cannot_be_taken_says_why(files: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said.replace(".", r"\.")):
        Candidate(files=files)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("import torch", "torch"),
        ("import torch  # not triton", "torch"),
        ("s = 'import triton'", "torch"),
        ("import triton.language as tl", "triton"),
        ("from torch.utils.cpp_extension import load_inline", "cuda"),
        ("def broken(:\n  import triton", "triton"),
    ],
)
def test_the_language_is_what_the_code_imports_not_what_a_comment_says(text: str, language: str) -> None:
    assert Candidate(files={"candidate.py": text}).language == language


@given(st.text(max_size=50), st.text(max_size=50))
def test_equal_sources_have_equal_digests_and_others_have_others(one: str, other: str) -> None:
    first, second = Candidate(files={"candidate.py": one}), Candidate(files={"candidate.py": other})
    assert (first.digest == second.digest) == (one == other)


def test_the_kernels_that_a_source_defines_are_known_by_name() -> None:
    triton = "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef rows(x):\n    pass\n\ndef helper(x):\n    pass\n"
    again = "from triton import jit\n\n@jit(noinline=True)\ndef cols(x):\n    pass\n"
    bounds = "__launch_bounds__(256)"
    cuda = f"__global__ void {bounds} k(float* x) {{}}\n__global__ {bounds} void spread(int n) {{}}\n"
    assert kernel_names({"candidate.py": triton + again, "k.cu": cuda}) == ("cols", "k", "rows", "spread")
    assert kernel_names({"candidate.py": "x = 1"}) == ()

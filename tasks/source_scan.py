"""What a candidate's text imports, without running it or parsing it whole (a hostile text can crash the parser)."""

import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

Language = Literal["torch", "triton", "cuda"]

EXTENSION_NAMES: Final = frozenset({"load_inline", "cpp_extension", "CUDAExtension", "CppExtension"})
"""Names by which torch builds C++ and CUDA sources at run time."""
CUDA_SUFFIXES: Final = (".cu", ".cuh", ".cpp", ".cc", ".h", ".hpp")
MOST_KERNELS: Final = 200
_BOUNDS: Final = r"(?:__launch_bounds__\s*\([^()]{0,100}\)\s*)?"
_KERNELS: Final = (
    re.compile(r"^[ \t]*@(?:triton\.)?jit\b[^\n]*\n(?:[ \t]*@[^\n]*\n){0,9}[ \t]*def[ \t]+(\w{1,200})", re.MULTILINE),
    re.compile(r"\b__global__\s+" + _BOUNDS + r"void\s+" + _BOUNDS + r"(\w{1,200})"),
)
"""How a kernel is defined in Triton, and in CUDA. Bounded: the text is hostile, and the server reads it."""
_SKIPPED: Final = frozenset({tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING})


class SourceScan(NamedTuple):
    """What the text of a candidate shows. A description: whoever hides an import is met by the walls, not by this."""

    language: Language
    modules: frozenset[str]
    """Top-level modules that it imports by a statement, or names as text in a call such as `import_module`."""


def scan_files(files: Mapping[str, str]) -> SourceScan:
    """Language and imports of all Python files of a candidate. Comments and plain strings do not count.

    Args:
        files: File name → text.
    """
    modules: set[str] = set()
    names: set[str] = set()
    for name, text in files.items():
        if name.endswith(".py"):
            tokens = [token for token in tokens_of(text) if token.type not in _SKIPPED]
            names.update(token.string for token in tokens if token.type == tokenize.NAME)
            modules.update(_imported(tokens))
    if names & EXTENSION_NAMES or any(name.endswith(CUDA_SUFFIXES) for name in files):
        return SourceScan("cuda", frozenset(modules))
    return SourceScan("triton" if "triton" in modules else "torch", frozenset(modules))


def kernel_names(files: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the Triton and CUDA kernels that a candidate's texts define, sorted. A description, as the scan is."""
    found = {name for text in files.values() for form in _KERNELS for name in form.findall(text)}
    return tuple(sorted(found)[:MOST_KERNELS])


def tokens_of(text: str) -> Iterator[tokenize.TokenInfo]:
    """Tokens up to the first place that is not Python: what comes after never runs. A whole text has an ENDMARKER."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if (
                token.type == tokenize.ERRORTOKEN
            ):  # going on from such a place takes time that is quadratic in the length
                return
            yield token
    except (tokenize.TokenError, SyntaxError, ValueError):
        return


def _imported(tokens: list[tokenize.TokenInfo]) -> Iterator[str]:
    for index, token in enumerate(tokens[:-1]):
        following = tokens[index + 1]
        if token.type != tokenize.NAME:
            continue
        if token.string == "from" and following.type == tokenize.NAME and _starts_statement(tokens, index):
            yield following.string
        elif token.string == "import" and _starts_statement(tokens, index):
            yield from _listed(tokens, index + 1)
        elif token.string in ("import_module", "__import__") and index + 2 < len(tokens):
            argument = tokens[index + 2]
            if argument.type == tokenize.STRING:
                yield argument.string.strip("rbuRBU'\"").partition(".")[0]


def _starts_statement(tokens: list[tokenize.TokenInfo], index: int) -> bool:
    """Whether a token begins a statement: `raise … from error` and `yield from` do not import."""
    before = tokens[index - 1] if index else None
    return before is None or before.type == tokenize.NEWLINE or before.string in (";", ":")


def _listed(tokens: list[tokenize.TokenInfo], index: int) -> Iterator[str]:
    """Top-level names of `import a.b as c, d`."""
    expected = True
    for token in tokens[index:]:
        if token.type == tokenize.NEWLINE or token.string == ";":
            return
        if token.string == ",":
            expected = True
        elif expected and token.type == tokenize.NAME:
            yield token.string
            expected = False

"""What kind of code a candidate is, and which sources are the same but for comments, layout and local names.

Read from tokens, as `source_scan` does: nothing is run, and a hostile text cannot crash a parser. A description for
whoever chooses what to try next; nothing is judged by it.
"""

import hashlib
import keyword
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kernelgate.tasks.source_scan import Language, scan_files, tokens_of

FEATURES: Final = {
    # Found as a word of the code → what it tells about the kernel. The order is that in which they are told.
    r"dot|dot_scaled|wmma|mma_sync|wgmma": "tensor cores",
    r"autotune": "autotune",
    r"make_block_ptr|make_tensor_descriptor|CUtensorMap": "block pointers",
    r"num_programs|persistent": "persistent",
    r"atomic\w+": "atomics",
    r"associative_scan|cumsum|cumprod": "scan",
    r"reduce|argmax|argmin|__shfl\w*|__reduce\w*": "reduction",
    r"__shared__": "shared memory",
    r"float4|half2|__half2|uint4": "vector loads",
    r"cp_async|memcpy_async": "async copies",
    r"scaled_dot_product_attention": "fused attention",
    r"matmul|mm|bmm|addmm|baddbmm|einsum|linear": "matmul",
    r"softmax|log_softmax": "softmax",
    r"layer_norm|rms_norm|batch_norm|group_norm": "norm",
    r"compile": "torch.compile",
    r"CUDAGraph|make_graphed_callables": "CUDA graph",
    r"autocast|half|bfloat16|float16": "half precision",
    r"float64|double": "double precision",
    r"channels_last|as_strided|memory_format": "memory layout",
    r"empty|empty_like|empty_strided": "own workspace",
    r"\w+[a-z]_": "in place",
}
_FEATURES: Final = tuple((re.compile(pattern), feature) for pattern, feature in FEATURES.items())
_CUT: Final = r"(?:BLOCK|TILE|CHUNK|GROUP|NUM_THREADS|THREADS)\w*|B[MNK]|num_warps|num_stages"
_TILE: Final = re.compile(rf"\b({_CUT})\b[\"' ]*(?::[ \w.]*)?[=: ]+(\d{{1,9}})\b")
_TILES: Final = re.compile(r"\b((?:\w+ , ){1,15}\w+) = ((?:\d{1,9} , ){1,15}\d{1,9})\b")
"""Several at once: `BM, BN = 128, 64`."""
_C_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|(\"(?:\\.|[^\"\\\n])*\"?)", re.DOTALL)
"""Or a text, in which `//` is none. What is never closed goes to the end, so that no place is looked at twice."""
_ASSIGNS: Final = frozenset(
    {"=", ":=", "+=", "-=", "*=", "/=", "//=", "%=", "@=", "&=", "|=", "^=", ">>=", "<<=", "**="}
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_FARTHEST: Final = 300
"""Tokens of a target list or of parameters: a text that repeats `for` without an end must not take for ever."""
_ENTRY: Final = "ModelNew"
_WORD: Final = re.compile(r"""^['"]([A-Za-z_]\w*)['"]$""")
_PLAIN_TEXT: Final = re.compile(r"""^(['"])([^'"\\]*)\1$""")
_LAYOUT: Final = {tokenize.NEWLINE: ";", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
_DROPPED: Final = frozenset({tokenize.NL, tokenize.COMMENT, tokenize.ENCODING, tokenize.ENDMARKER})


class Shape(NamedTuple):
    """A candidate's structure, whatever its speed."""

    language: Language
    kernels: int
    """Kernels that its own code defines; 0 where it only calls those of others."""
    features: tuple[str, ...]
    tiles: tuple[str, ...]
    """Constants by which the work is cut, such as `BLOCK_M 64`."""
    skeleton: str
    """Equal for sources that differ in comments, layout and local names alone; empty where a text cannot be read."""


def shape_of(files: Mapping[str, str]) -> Shape:
    """The structure of a candidate.

    Args:
        files: File name → text.
    """
    digest = hashlib.sha256()
    code: list[str] = []
    jitted = whole = 0
    for name, text in sorted(files.items()):
        if name.endswith(".py"):
            tokens = list(tokens_of(text))
            whole += bool(tokens) and tokens[-1].type == tokenize.ENDMARKER
            kept = [token for token in tokens if token.type not in _DROPPED]
            kept = [token for index, token in enumerate(kept) if not _is_remark(kept, index)]
            jitted += sum(_is_jitted(kept, index) for index in range(len(kept)))
            parts: Sequence[str] = list(_renamed(kept))
            code.append(" ".join(token.string for token in kept))
        else:
            whole += 1
            parts = _C_COMMENT.sub(lambda found: found[1] or " ", text).split()
            code.append(" ".join(parts))
        digest.update("\0".join((name, *parts, "\1")).encode("utf-8", "surrogatepass"))
    text = "\n".join(code)
    words = set(re.findall(r"\w+", text))
    found = [feature for pattern, feature in _FEATURES if any(pattern.fullmatch(word) for word in words)]
    return Shape(
        language=scan_files(files).language,
        kernels=jitted + len(re.findall(r"\b__global__\b", text)),
        features=tuple(dict.fromkeys(found)),
        tiles=tuple(sorted(set(_tiles(text)))),
        skeleton=digest.hexdigest() if whole == len(files) else "",
    )


def _tiles(text: str) -> Iterator[str]:
    for names, values in _TILES.findall(text):
        pairs = zip(names.split(" , "), values.split(" , "), strict=False)
        yield from (f"{name} {value}" for name, value in pairs if re.fullmatch(_CUT, name))
    for name, value in _TILE.findall(_TILES.sub(" ", text)):
        yield f"{name} {value}"


def _is_remark(tokens: Sequence[tokenize.TokenInfo], index: int) -> bool:
    """Whether a token is part of a text that stands alone as a statement: a docstring."""
    token = tokens[index]
    if token.type == tokenize.NEWLINE:
        return index > 0 and tokens[index - 1].type == tokenize.STRING and _is_remark(tokens, index - 1)
    if token.type != tokenize.STRING or index + 1 == len(tokens) or tokens[index + 1].type != tokenize.NEWLINE:
        return False
    return index == 0 or tokens[index - 1].type in _LAYOUT


def _is_jitted(tokens: Sequence[tokenize.TokenInfo], index: int) -> bool:
    """Whether a token is the `jit` of a decorator `@triton.jit` or `@jit`."""
    before = [token.string for token in tokens[max(0, index - 3) : index]]
    return tokens[index].string == "jit" and (before[-1:] == ["@"] or before == ["@", "triton", "."])


def _renamed(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[str]:
    """The tokens as text, local names numbered in order of their appearance, layout as brackets."""
    numbers = dict.fromkeys(_bound(tokens), "")
    seen = 0
    opened: list[bool] = []  # whether each open bracket takes a last comma that says nothing
    for index, token in enumerate(tokens):
        text = token.string
        after_dot = index > 0 and tokens[index - 1].string == "."
        word = _WORD.match(text) if token.type == tokenize.STRING else None
        name = word[1] if word else text
        if token.type in _LAYOUT:
            yield _LAYOUT[token.type]
        elif name in numbers and not after_dot:
            if not numbers[name]:
                seen += 1
                numbers[name] = f"\2{seen}"
            yield f"'{numbers[name]}'" if word else numbers[name]
        elif token.type == tokenize.STRING and (plain := _PLAIN_TEXT.match(text)):
            yield f"'{plain[2]}'"
        else:
            if text in _OPENING:
                opened.append(text != "(" or (index > 0 and _is_called(tokens[index - 1])))
            elif text in _CLOSING and opened:
                opened.pop()
            if text != "," or not _is_last_comma(tokens, index, opened):
                yield text


def _is_called(before: tokenize.TokenInfo) -> bool:
    """Whether a bracket behind this token is that of a call or a definition: elsewhere a comma makes a tuple."""
    return before.string in _CLOSING or (before.type == tokenize.NAME and not keyword.iskeyword(before.string))


def _is_last_comma(tokens: Sequence[tokenize.TokenInfo], index: int, opened: Sequence[bool]) -> bool:
    return bool(opened) and opened[-1] and index + 1 < len(tokens) and tokens[index + 1].string in _CLOSING


def _bound(tokens: Sequence[tokenize.TokenInfo]) -> set[str]:
    """Names that the text itself binds: targets, parameters, aliases, functions and classes at the top."""
    names: set[str] = set()
    depth = level = 0
    start = 0  # of the statement
    for index, token in enumerate(tokens):
        before = tokens[index - 1].string if index else ""
        level += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
        depth += (token.string in _OPENING) - (token.string in _CLOSING)
        if token.type in _LAYOUT or (token.string == ";" and depth == 0):
            start = index + 1
        elif token.string in _ASSIGNS and (depth == 0 or token.string == ":="):
            names.update(_targets(tokens[start if depth == 0 else index - 1 : index]))
            start = index + 1 if depth == 0 else start  # of `a = b = 1` each name is looked at once
        elif token.string == "for":
            names.update(_targets(_until(tokens, index + 1, "in")))
        elif token.string in ("def", "lambda"):
            names.update(_parameters(tokens, index, ")" if token.string == "def" else ":"))
        if token.type == tokenize.NAME and (before == "as" or (before in ("def", "class") and level == 0)):
            names.add(token.string)
    return {name for name in names if name != _ENTRY and not keyword.iskeyword(name)}


def _until(tokens: Sequence[tokenize.TokenInfo], index: int, end: str) -> Sequence[tokenize.TokenInfo]:
    stop, limit = index, min(len(tokens), index + _FARTHEST)
    while stop < limit and tokens[stop].string != end and tokens[stop].type != tokenize.NEWLINE:
        stop += 1
    return tokens[index:stop]


def _targets(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[str]:
    """Names among the targets of an assignment: not those of attributes, items, calls and annotations."""
    for index, token in enumerate(tokens):
        if token.string == ":":
            return
        before = tokens[index - 1].string if index else ""
        after = tokens[index + 1].string if index + 1 < len(tokens) else ""
        if token.type == tokenize.NAME and before != "." and after not in (".", "[", "("):
            yield token.string


def _parameters(tokens: Sequence[tokenize.TokenInfo], index: int, end: str) -> Iterator[str]:
    """Names of the parameters of a `def` or a `lambda` that stands at the index."""
    depth = 0
    for place in range(index + 1, min(len(tokens), index + _FARTHEST)):
        token, before = tokens[place], tokens[place - 1].string
        depth += (token.string in _OPENING) - (token.string in _CLOSING)
        if token.type == tokenize.NEWLINE or (token.string == end and depth == 0):
            return
        outer = depth == (1 if end == ")" else 0)
        if token.type == tokenize.NAME and outer and before in ("(", ",", "*", "**", "lambda"):
            yield token.string

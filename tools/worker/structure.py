"""Nested arguments and answers (tensors, scalars, lists, tuples, dicts) as JSON descriptions, and back."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

import torch

from kernelgate.tools.worker.protocol import DictNode, ListNode, Node, ScalarNode, TensorNode

MAX_DEPTH: Final = 16
"""Nesting of arguments and answers; deeper ones are somebody's accident or attack."""


class Unsupported(TypeError):
    """A value that cannot be lent: neither tensor, scalar, list, tuple nor dict."""


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """The dtype of a name; raises `Unsupported`."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise Unsupported(f"{name!r} is no dtype of this torch")
    return dtype


def encode(value: object, place: Callable[[torch.Tensor], int], depth: int = 0) -> Node:
    """Describe a value; `place` puts a tensor among the lent ones and says where. Raises `Unsupported`."""
    if depth > MAX_DEPTH:
        raise Unsupported(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, torch.Tensor):
        return TensorNode(index=place(value))
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return ListNode(
            kind="list" if isinstance(value, list) else "tuple",
            items=tuple(encode(item, place, depth + 1) for item in items),
        )
    if isinstance(value, dict):
        pairs = cast("dict[Any, object]", value)
        if not all(isinstance(key, str | int) and not isinstance(key, bool) for key in pairs):
            raise Unsupported("a dict whose keys are neither text nor integers")
        return DictNode(keys=tuple(pairs), items=tuple(encode(item, place, depth + 1) for item in pairs.values()))
    return encode_scalar(value)


def encode_scalar(value: object) -> ScalarNode:
    """Describe a value that is no tensor; raises `Unsupported`."""
    if value is None:
        return ScalarNode(kind="none")
    if isinstance(value, bool):
        return ScalarNode(kind="bool", text="1" if value else "")
    if isinstance(value, int):
        return ScalarNode(kind="int", text=str(int(value)))
    if isinstance(value, float):
        return ScalarNode(kind="float", text=float(value).hex())
    if isinstance(value, str):
        return ScalarNode(kind="str", text=value)
    if isinstance(value, torch.dtype):
        return ScalarNode(kind="dtype", text=dtype_name(value))
    raise Unsupported(f"a value of type {type(value).__module__}.{type(value).__qualname__}")


def decode(node: Node, tensors: Sequence[torch.Tensor]) -> Any:
    """The value that was described, with the tensors put in place; raises `Unsupported` or ValueError."""
    if isinstance(node, TensorNode):
        return tensors[node.index]
    if isinstance(node, ListNode):
        items = [decode(item, tensors) for item in node.items]
        return items if node.kind == "list" else tuple(items)
    if isinstance(node, DictNode):
        return {key: decode(item, tensors) for key, item in zip(node.keys, node.items, strict=True)}
    return decode_scalar(node)


def decode_scalar(node: ScalarNode) -> object:
    """The scalar that was described; raises `Unsupported` or ValueError."""
    text = node.text
    if node.kind == "dtype":
        return dtype_of(text)
    readers: dict[str, Callable[[], object]] = {
        "none": lambda: None,
        "bool": lambda: bool(text),
        "int": lambda: int(text),
        "float": lambda: float.fromhex(text),
        "str": lambda: text,
    }
    return readers[node.kind]()


def leaves(value: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    """Tensors and scalars of an answer with their paths: empty for the answer itself, `[1]`, `['logits'][0]`."""
    if depth > MAX_DEPTH:
        raise Unsupported(f"an answer nested more than {MAX_DEPTH} deep")
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = cast("Sequence[object]", value)
        for index, item in enumerate(items):
            yield from leaves(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        for key, item in pairs.items():
            yield from leaves(item, f"{path}[{key!r}]", depth + 1)
    else:
        yield path, value


def tensors_in(value: object) -> list[torch.Tensor]:
    """The tensors of a nested value, in order."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def replaced(value: object, new: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same nesting with each tensor replaced."""
    tensors: list[torch.Tensor] = []

    def place(tensor: torch.Tensor) -> int:
        tensors.append(new(tensor))
        return len(tensors) - 1

    return decode(encode(value, place), tensors)


def mapped(value: object, new: Callable[[str, Any], Any], path: str = "") -> Any:
    """The same nesting with each leaf replaced by `new` of its path and value; paths as in `leaves`."""
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = [mapped(item, new, f"{path}[{index}]") for index, item in enumerate(cast("Sequence[object]", value))]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {k: mapped(item, new, f"{path}[{k!r}]") for k, item in cast("dict[object, object]", value).items()}
    return new(path, value)


def call_arguments(drawn: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of what `get_inputs` or `get_init_inputs` returned."""
    if isinstance(drawn, dict):
        return (), {str(key): value for key, value in cast("dict[object, Any]", drawn).items()}
    if isinstance(drawn, list | tuple):
        return tuple(cast("Sequence[Any]", drawn)), {}
    return (drawn,), {}

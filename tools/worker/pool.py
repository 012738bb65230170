"""The input pool of a call: private inputs, the same inputs lent, poisoned answer buffers, and how they stay fresh."""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from kernelgate.tools.worker.inputs import Drawn
from kernelgate.tools.worker.lending import Lender, Loan, storage_bytes
from kernelgate.tools.worker.poison import Poison, draw_poison
from kernelgate.tools.worker.protocol import AnswerPlace, Entry, Lend, Node
from kernelgate.tools.worker.renewal import flattened, renew
from kernelgate.tools.worker.structure import decode, encode, leaves, replaced

PIECE_ROWS: Final = 64 << 20
"""So much is compared at a time, in words or sampled lines."""
ANSWER_SETS: Final = 3
"""Of buffers on the CPU: an answer made in place is in the right place once in three times, so that the median call
copies it as the baseline does."""
_SAMPLE_WORDS: Final = 8
_STRIPE_WORDS: Final = 128
"""A quick look compares one random cache line of each KiB: spoiling inputs to slow a baseline needs more than that."""


@dataclass
class PoolEntry:
    """One set of inputs."""

    drawn: Drawn
    """Private: what the lent memory must still hold after a call."""
    lent: Any
    """The same nesting over lent memory."""
    sets: list[dict[str, torch.Tensor]]
    """Lent buffers for the answers, by path of the output."""
    chosen: int
    """Into which of them the next answer goes: nobody else knows before it is made."""
    poisons: dict[str, Poison]
    node: Node
    """What the candidate was told of its arguments."""
    first: int
    """Number of its first input tensor among all that were lent with it."""

    @property
    def answers(self) -> dict[str, torch.Tensor]:
        """The buffers that count."""
        return self.sets[self.chosen]

    @property
    def lent_tensors(self) -> list[torch.Tensor]:
        """The input tensors in lent memory."""
        return [leaf for _, leaf in leaves(self.lent) if isinstance(leaf, torch.Tensor)]

    def changed(self) -> bool:
        """Whether lent inputs differ from the private ones."""
        return any_true(self.differences())

    def differences(self, secret: random.Random | None = None) -> list[torch.Tensor]:
        """Truth values, true where lent inputs differ from the private ones; a GPU is not waited for.

        With `secret` only a random sample is looked at.
        """
        return [
            difference
            for mine, lent in zip(self.drawn.tensors, self.lent_tensors, strict=True)
            for difference in _differences(storage_bytes(mine), storage_bytes(lent), secret)
        ]

    def put_back(self) -> None:
        """Overwrite the lent inputs with the private ones."""
        for mine, lent in zip(self.drawn.tensors, self.lent_tensors, strict=True):
            storage_bytes(lent).copy_(storage_bytes(mine))

    def poison(self, secret: random.Random) -> None:
        """Fill the lent answer buffers with their secret pattern, and choose anew which will count."""
        for places in self.sets:
            for path, answer in places.items():
                self.poisons[path].fill(answer)
        self.chosen = secret.randrange(len(self.sets))

    def refresh(self, secret: random.Random, redraw: Callable[[], Drawn]) -> None:
        """Give the entry values that nobody has seen; where that takes drawing all inputs again, they are."""
        if not self.drawn.continuous:
            # What only changes places still sorts, counts and adds up to the same.
            _overwrite(self.drawn.tensors, redraw().tensors)
            self.put_back()
            return
        lent = self.lent_tensors
        tensors = self.drawn.tensors
        for position in self.drawn.exchangeable:
            renew(tensors[position], lent[position], secret, continuous=position in self.drawn.continuous)

    def replace(self, drawn: Drawn) -> None:
        """Overwrite both copies with other inputs of the same form."""
        _overwrite(self.drawn.tensors, drawn.tensors)
        self.put_back()


class InputPool:
    """Entries that both sides read; made anew, in new memory, for each comparison and each prepared workload."""

    def __init__(self, lender: Lender, secret: random.Random, sets: int = 1) -> None:
        """Empty. With several sets of answer buffers, an answer that was made in place is in the wrong place."""
        self._lender = lender
        self._sets = sets
        self._secret = secret
        self._loans: list[Loan] = []
        self.entries: list[PoolEntry] = []

    def add(self, drawn: Sequence[Drawn], expected: object, *, replace: bool) -> tuple[Lend, Loan]:
        """Lend more entries, with room for answers shaped like `expected`, poisoned.

        Returns what is to be sent to the candidate. Raises OSError or MemoryError.
        """
        wanted = [(path, leaf) for path, leaf in leaves(expected) if isinstance(leaf, torch.Tensor)]
        copied: list[torch.Tensor] = []

        def place(tensor: torch.Tensor) -> int:
            copied.append(tensor)
            return len(copied) - 1

        firsts: list[int] = []
        nodes: list[Node] = []
        for one in drawn:
            firsts.append(len(copied))
            nodes.append(encode(one.arguments, place))
        blanks = [leaf for _ in range(len(drawn) * self._sets) for _, leaf in wanted]
        loan = self._lender.lend(copied, blanks)
        self._loans.append(loan)
        descriptions: list[Entry] = []
        for number, (one, node) in enumerate(zip(drawn, nodes, strict=True)):
            first = len(copied) + number * self._sets * len(wanted)
            sets = tuple(
                tuple(AnswerPlace(path=path, index=first + s * len(wanted) + i) for i, (path, _) in enumerate(wanted))
                for s in range(self._sets)
            )
            descriptions.append(Entry(inputs=node, answers=sets))
            entry = PoolEntry(
                drawn=one,
                lent=decode(node, loan.tensors),
                sets=[{p.path: loan.tensors[p.index] for p in places} for places in sets],
                chosen=0,
                poisons={path: draw_poison(leaf.dtype, self._secret) for path, leaf in wanted},
                node=node,
                first=firsts[number],
            )
            entry.poison(self._secret)
            self.entries.append(entry)
        return Lend(replace=replace, parcel=loan.parcel, entries=tuple(descriptions)), loan

    def private_answers(self, entry: PoolEntry) -> tuple[Loan, list[dict[str, torch.Tensor]]]:
        """Buffers like an entry's answers, of the same kind of memory, which nobody is given."""
        loan = self._lender.lend((), [answer for places in entry.sets for answer in places.values()])
        loan.close_descriptor()
        tensors = iter(loan.tensors)
        return loan, [{path: next(tensors) for path in places} for places in entry.sets]

    def places_of(self, order: Sequence[int]) -> Callable[[int], int]:
        """Position of a call in a row → the set of buffers that its answer goes into."""
        return lambda position: self.entries[order[position]].chosen

    def refill(self, index: int, drawn: Drawn, expected: object) -> bool:
        """Put other inputs into the memory of an entry, and poison its answers anew.

        False, and nothing done, where they have another form than what the candidate was told of.
        """
        entry = self.entries[index]
        count = itertools.count(entry.first)
        if encode(drawn.arguments, lambda _: next(count)) != entry.node:
            return False
        wanted = {path: leaf for path, leaf in leaves(expected) if isinstance(leaf, torch.Tensor)}
        if _forms(drawn.tensors) != _forms(entry.lent_tensors) or wanted.keys() != entry.answers.keys():
            return False
        if any(wanted[path].shape != a.shape or wanted[path].dtype != a.dtype for path, a in entry.answers.items()):
            return False
        entry.drawn = drawn
        entry.put_back()
        entry.poisons = {path: draw_poison(leaf.dtype, self._secret) for path, leaf in wanted.items()}
        entry.poison(self._secret)
        return True

    def variant(self, redraw: Callable[[], Drawn]) -> Drawn:
        """A further set of inputs: another entry's, reordered throughout, or drawn anew where order matters."""
        if not self.entries:
            return redraw()
        model = self._secret.choice(self.entries).drawn
        if not model.exchangeable:
            return redraw()
        copy = Drawn(replaced(model.arguments, _with_own_storage), model.exchangeable, model.continuous)
        tensors = copy.tensors
        for position in copy.exchangeable:
            flat = flattened(tensors[position])
            flat.copy_(flat.roll(self._secret.randrange(1, flat.numel())))
        return copy


def _forms(tensors: Sequence[torch.Tensor]) -> list[tuple[object, ...]]:
    """All that must agree for the bytes of some tensors to take the place of others'."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    starts = [storage.data_ptr() for storage in storages]
    return [
        (t.dtype, t.shape, t.stride(), t.storage_offset(), storage.nbytes(), starts.index(storage.data_ptr()))
        for t, storage in zip(tensors, storages, strict=True)
    ]


def which_changed(asked: Sequence[tuple[PoolEntry, random.Random | None]]) -> list[PoolEntry]:
    """Entries whose lent inputs differ from the private ones; with a secret only a sample is looked at.

    One wait for the device in all.
    """
    found = [(number, each) for number, (entry, secret) in enumerate(asked) for each in entry.differences(secret)]
    told = torch.stack([each for _, each in found]).cpu() if found else ()
    changed = {number for (number, _), differs in zip(found, told, strict=True) if differs}
    return [asked[number][0] for number in sorted(changed)]


def any_true(found: Sequence[torch.Tensor]) -> bool:
    """Whether one of some truth values is true; one wait for the device in all."""
    return bool(torch.stack(list(found)).any()) if found else False


def _differences(one: torch.Tensor, other: torch.Tensor, secret: random.Random | None) -> list[torch.Tensor]:
    if one.data_ptr() % 8 or other.data_ptr() % 8:
        return _unlike(one, other)
    words = one.numel() // 8
    left, right = one[: words * 8].view(torch.int64), other[: words * 8].view(torch.int64)
    rest = words * 8
    if secret is not None and words >= 4 * _STRIPE_WORDS:
        stripes = words // _STRIPE_WORDS
        start = secret.randrange(_STRIPE_WORDS // _SAMPLE_WORDS) * _SAMPLE_WORDS
        shape, strides = (stripes, _SAMPLE_WORDS), (_STRIPE_WORDS, 1)
        left = left.as_strided(shape, strides, left.storage_offset() + start)
        right = right.as_strided(shape, strides, right.storage_offset() + start)
    return _unlike(left, right) + _unlike(one[rest:], other[rest:])


def _unlike(one: torch.Tensor, other: torch.Tensor) -> list[torch.Tensor]:
    """In pieces: on a GPU a comparison needs memory for its findings. On a CPU `equal` needs none and is faster."""
    starts = range(0, len(one), PIECE_ROWS)
    pieces = [(one[start : start + PIECE_ROWS], other[start : start + PIECE_ROWS]) for start in starts]
    if one.is_cuda:
        return [torch.ne(left, right).any() for left, right in pieces]
    return [torch.tensor(not torch.equal(left, right)) for left, right in pieces]


def _overwrite(old: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> None:
    """Take over newly drawn values where they have the form of the old ones."""
    for mine, fresh in zip(old, new, strict=True):
        same = mine.shape == fresh.shape and mine.dtype == fresh.dtype and mine.stride() == fresh.stride()
        if same and mine.untyped_storage().nbytes() == fresh.untyped_storage().nbytes():
            storage_bytes(mine).copy_(storage_bytes(fresh))


def _with_own_storage(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and offset over storage of its own."""
    storage = storage_bytes(tensor).clone().untyped_storage()
    copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return copy.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())

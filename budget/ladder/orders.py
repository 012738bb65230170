"""Other orders in which the same candidates could have come: a child never before its parent. Pure."""

import random
from collections import defaultdict
from collections.abc import Iterator

from kernelgate.budget.ladder.model import Truth


def orders(truth: Truth, count: int, seed: int) -> Iterator[tuple[str, ...]]:
    """So many shuffles of a stream, the same for the same seed; a parent that is not in the truth binds nobody."""
    draws = random.Random(f"{seed} {truth.stream}")
    known = {tried.id for tried in truth.tried}
    children: dict[str | None, list[str]] = defaultdict(list)
    for tried in truth.tried:
        children[tried.parent if tried.parent in known else None].append(tried.id)
    for _ in range(count):
        ready = list(children[None])
        order: list[str] = []
        while ready:
            place = draws.randrange(len(ready))
            ready[place], ready[-1] = ready[-1], ready[place]
            chosen = ready.pop()
            order.append(chosen)
            ready.extend(children.get(chosen, ()))
        yield tuple(order)

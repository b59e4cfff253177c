"""Lists that grow into others: none is changed by another, whatever they share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.http.growing import Growing

growths = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 8), st.lists(st.integers(0, 3), max_size=4)))


@given(st.lists(st.integers(0, 3), max_size=4), growths)
def test_every_list_has_its_own_items_whichever_grew_from_it(
    first: list[int], grown: list[tuple[int, int, list[int]]]
) -> None:
    expected, made = [list(first)], [Growing(list(first))]
    for which, left_out, new in grown:
        before = expected[which % len(expected)]
        count = max(0, len(before) - left_out)
        made.append(made[which % len(made)].grown(count, list(new)))
        expected.append(before[:count] + new)
    for items, found in zip(expected, made, strict=True):
        assert list(found) == items
        assert list(reversed(found)) == items[::-1]
        assert [found[at] for at in range(-len(found), len(found))] == items + items
        assert (found[1:], found[-2:], found[::-1]) == (items[1:], items[-2:], items[::-1])
        for others, other in zip(expected, made, strict=True):
            pairs = zip(items, others, strict=False)
            same = next((at for at, (one, two) in enumerate(pairs) if one != two), min(len(items), len(others)))
            assert found.begun_with(other) == same


def test_a_list_has_nothing_of_what_was_put_behind_it() -> None:
    one = Growing(["a"])
    two = one.grown(1, ["b"])
    assert (len(one), list(one), list(two)) == (1, ["a"], ["a", "b"])
    with pytest.raises(IndexError):
        one[1]


def test_lists_that_grow_at_once_from_one_do_not_get_into_each_other() -> None:
    ready = threading.Barrier(4)

    def grow(one: Growing[int], number: int) -> list[int]:
        ready.wait()
        return list(one.grown(1, [number] * 50))

    with ThreadPoolExecutor(ready.parties) as threads:
        for _ in range(100):
            made = list(threads.map(grow, [Growing([0])] * ready.parties, range(ready.parties)))
            assert made == [[0, *([number] * 50)] for number in range(ready.parties)]

"""Queues and rates as they are written: what makes sense is kept as given, and what does not is refused with a hint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import perdure
from perdure import queues, records
from perdure.errors import UsageError
from perdure.queues import Placement, placed


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    queues.forget_declared()
    yield
    queues.forget_declared()


def test_limits_are_kept_as_they_are_written() -> None:
    rate = perdure.Rate(120, per="1m", burst=10, name="openai")
    queue = perdure.Queue("mail", concurrency=20, per_worker=5, rate=rate)
    assert queue.limits == records.Queue("mail", concurrency=20, per_worker=5, rate=2.0, burst=10, bucket="openai")
    assert queues.declared() == [queue.limits]


def test_bucket_holds_as_much_as_the_rate_counts_where_nothing_else_is_said() -> None:
    assert perdure.Rate(100, per="1m").burst == 100
    assert perdure.Rate(0.5).burst == 1
    assert perdure.Rate(2.5).burst == 3


def test_same_queue_may_be_written_twice_and_another_of_its_name_not() -> None:
    perdure.Queue("mail", concurrency=2)
    perdure.Queue("mail", concurrency=2)
    with pytest.raises(UsageError, match=r"declared twice: with concurrency=2, and with concurrency=3\.") as refused:
        perdure.Queue("mail", concurrency=3)
    assert 'queue="mail"' in refused.value.hint
    with pytest.raises(UsageError, match="and with no limits"):
        perdure.Queue("mail")


def test_what_is_asked_for_is_read_and_what_is_not_leaves_no_placement() -> None:
    assert placed(None, None, None, None) is None
    assert placed("mail", -5, "ada", "1m 30s") == Placement("mail", -5, "ada", 90.0)
    assert placed(perdure.Queue("mail"), None, None, None) == Placement("mail")
    assert placed(None, 0, None, None) == Placement(priority=0)
    assert placed(None, None, None, 0) == Placement()


def _agent(**options: Any) -> None:
    @perdure.agent(**options)
    def made() -> None:
        pass


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: perdure.Queue(""), "'' is no name of a queue"),
        (lambda: perdure.Queue("-x"), "'-x' is no name of a queue"),
        (lambda: perdure.Queue("two words"), "no name of a queue"),
        (lambda: perdure.Queue("a\nb"), "no name of a queue"),
        (lambda: perdure.Queue("é"), "no name of a queue"),
        (lambda: perdure.Queue("x" * 101), "no name of a queue"),
        (lambda: perdure.Queue(7), "7 is no name of a queue"),  # type: ignore[arg-type]
        (lambda: perdure.Queue("q", concurrency=0), "concurrency=0 is no whole number of 1"),
        (lambda: perdure.Queue("q", concurrency=-1), "concurrency=-1"),
        (lambda: perdure.Queue("q", concurrency=1.5), "concurrency=1.5"),  # type: ignore[arg-type]
        (lambda: perdure.Queue("q", per_worker=True), "per_worker=True"),
        (lambda: perdure.Queue("q", per_worker=2**31), "per_worker=2147483648"),
        (lambda: perdure.Queue("q", rate=5), r"rate=5\) is no rate"),  # type: ignore[arg-type]
        (lambda: perdure.Rate(0), r"Rate\(0, per='1s'\) lets nothing begin"),
        (lambda: perdure.Rate(-1), "lets nothing begin"),
        (lambda: perdure.Rate(float("inf")), "lets nothing begin"),
        (lambda: perdure.Rate("5"), "lets nothing begin"),  # type: ignore[arg-type]
        (lambda: perdure.Rate(1, per=0), "lets nothing begin"),
        (lambda: perdure.Rate(1, per="soon"), "per='soon' is no duration"),
        (lambda: perdure.Rate(1, burst=0), "burst=0 is no whole number of 1"),
        (lambda: perdure.Rate(1, name="a b"), "'a b' is no name of a rate"),
        (lambda: placed("a b", None, None, None), "no name of a queue"),
        (lambda: placed(None, 1.5, None, None), "priority=1.5"),  # type: ignore[arg-type]
        (lambda: placed(None, 2**31, None, None), "priority=2147483648"),
        (lambda: placed(None, None, "", None), "tenant='' is no tenant"),
        (lambda: placed(None, None, "a\x1b[2J", None), "is no tenant"),
        (lambda: placed(None, None, "x" * 201, None), "is no tenant"),
        (lambda: placed(None, None, None, "later"), "delay='later' is no duration"),
        (lambda: placed(None, None, None, -1), "delay=-1 is no duration"),
        (lambda: _agent(queue="a b"), "no name of a queue"),
        (lambda: _agent(deliveries=0), "deliveries=0 is no whole number of 1"),
        (lambda: _agent(deliveries="3"), "deliveries='3'"),
    ],
)
def test_what_cannot_work_is_refused_with_its_value_and_a_hint(act: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        act()
    assert refused.value.hint
    assert refused.value.safe

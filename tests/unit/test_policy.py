"""Retry arithmetic, and what an exception proves."""

from __future__ import annotations

import socket
import urllib.error
from email.message import Message
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import policy
from perdure.errors import UsageError
from perdure.policy import Retry, delay_seconds, may_retry, proves_nothing_happened
from perdure.records import Run


def a_run(*, updated_at: float = 0.0, deliveries: int = 0) -> Run:
    return Run("run-1", "name", "agent", b"", "power", 0.0, updated_at, deliveries=deliveries)


class TestRetry:
    @pytest.mark.parametrize(
        "chosen",
        [
            {"attempts": 0},
            {"attempts": -1},
            {"delay_seconds": -0.1},
            {"max_delay_seconds": -1.0},
            {"factor": 0.5},
            {"jitter": 1.5},
            {"jitter": -0.1},
            {"on": (int,)},
            {"on": ("OSError",)},
            {"on": OSError},
            {"on": (KeyboardInterrupt,)},
        ],
    )
    def test_policy_that_could_never_act_as_written_is_refused(self, chosen: dict[str, object]) -> None:
        with pytest.raises(UsageError) as refused:
            Retry(**chosen)  # type: ignore[arg-type]
        assert refused.value.hint.startswith("Retry(")

    def test_delay_doubles_up_to_its_limit(self) -> None:
        retry = Retry(delay_seconds=1.0, factor=2.0, max_delay_seconds=5.0, jitter=0.0)
        assert [delay_seconds(retry, failed_attempts=n, fraction=0.5) for n in range(1, 6)] == [1, 2, 4, 5, 5]

    def test_jitter_spreads_around_the_delay(self) -> None:
        retry = Retry(delay_seconds=10.0, jitter=0.1)
        assert delay_seconds(retry, failed_attempts=1, fraction=0.0) == pytest.approx(9.0)
        assert delay_seconds(retry, failed_attempts=1, fraction=0.5) == pytest.approx(10.0)
        assert delay_seconds(retry, failed_attempts=1, fraction=0.999999) == pytest.approx(11.0, rel=1e-3)

    @given(
        retry=st.builds(
            Retry,
            delay_seconds=st.floats(0, 3600),
            factor=st.floats(1, 10),
            max_delay_seconds=st.floats(0, 86_400),
            jitter=st.floats(0, 1),
        ),
        failed=st.integers(1, 10_000),
        fraction=st.floats(0, 1, exclude_max=True),
    )
    def test_delay_is_never_negative_and_never_above_its_limit(
        self, retry: Retry, failed: int, fraction: float
    ) -> None:
        waited = delay_seconds(retry, failed_attempts=failed, fraction=fraction)
        assert 0 <= waited <= retry.max_delay_seconds * (1 + retry.jitter)

    def test_attempts_are_counted(self) -> None:
        retry = Retry(attempts=3)
        assert [may_retry(retry, failed_attempts=n, error=OSError()) for n in (1, 2, 3, 4)] == [
            True,
            True,
            False,
            False,
        ]
        assert not may_retry(policy.ONCE, failed_attempts=1, error=OSError())

    def test_only_listed_exceptions_are_retried(self) -> None:
        retry = Retry(on=(TimeoutError, ConnectionError))
        assert may_retry(retry, failed_attempts=1, error=ConnectionResetError())
        assert not may_retry(retry, failed_attempts=1, error=ValueError())

    def test_interrupts_and_signals_are_never_retried(self) -> None:
        assert not may_retry(Retry(), failed_attempts=1, error=KeyboardInterrupt())


class Refused(Exception):
    """An answer, as the usual clients carry it."""

    def __init__(self, **fields: object) -> None:
        super().__init__("refused")
        self.__dict__.update(fields)


def proves(error: BaseException, *, certain: policy.ExceptionTypes = (), ambiguous: policy.ExceptionTypes = ()) -> bool:
    return proves_nothing_happened(error, certain=certain, ambiguous=ambiguous)


def named(module: str, name: str, base: type[Exception] = Exception) -> Exception:
    error: Exception = type(name, (base,), {"__module__": module})("lost")
    return error


class TestProof:
    @pytest.mark.parametrize(
        "error",
        [
            ConnectionRefusedError(),
            socket.gaierror(),
            named("httpx", "ConnectError"),
            named("httpx", "ConnectTimeout"),
            named("requests.exceptions", "ConnectTimeout"),
            named("aiohttp.client_exceptions", "ClientConnectorError"),
            named("urllib3.exceptions", "NewConnectionError"),
        ],
    )
    def test_request_that_was_never_sent_did_not_happen(self, error: BaseException) -> None:
        assert proves(error)

    @pytest.mark.parametrize(
        "error",
        [
            TimeoutError(),
            ConnectionResetError(),
            BrokenPipeError(),
            ConnectionError(),
            OSError(),
            ValueError(),
            KeyboardInterrupt(),
            named("httpx", "ReadTimeout"),
            named("httpx", "RemoteProtocolError"),
            named("requests.exceptions", "ConnectionError"),
            named("somebody", "ConnectError"),
        ],
    )
    def test_anything_unknown_proves_nothing(self, error: BaseException) -> None:
        assert not proves(error)

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429, 499])
    def test_refusal_by_the_other_side_did_not_happen(self, status: int) -> None:
        assert proves(Refused(response=SimpleNamespace(status_code=status)))
        assert proves(Refused(response=SimpleNamespace(status=status)))
        assert proves(Refused(status_code=status))
        assert proves(Refused(status=status))
        assert proves(urllib.error.HTTPError("http://localhost", status, "no", Message(), None))

    @pytest.mark.parametrize("status", [200, 302, 408, 409, 425, 500, 502, 503, 504, 600])
    def test_answer_that_may_follow_a_deed_proves_nothing(self, status: int) -> None:
        assert not proves(Refused(response=SimpleNamespace(status_code=status)))
        assert not proves(Refused(status=status))

    def test_code_that_is_no_status_proves_nothing(self) -> None:
        assert not proves(Refused(code="404"))
        assert not proves(Refused(response=None))

    def test_lists_of_the_effect_adjust_it(self) -> None:
        assert proves(ValueError(), certain=(ValueError,))
        assert not proves(ConnectionRefusedError(), ambiguous=(OSError,))
        assert not proves(Refused(status=404), ambiguous=(Refused,))

    def test_what_is_called_ambiguous_wins(self) -> None:
        assert not proves(ValueError(), certain=(ValueError,), ambiguous=(Exception,))


class TestJudgements:
    @pytest.mark.parametrize(
        ("over", "in_flight", "unproven", "left"),
        [
            (9.5, 10.0, 0.0, 0.5),
            (10.0, 10.0, 0.0, 0.0),
            (0.0, 0.0, 0.0, 0.0),
            (5.0, 10.0, 30.0, 35.0),
            (5.0, 0.0, 30.0, 25.0),
            (41.0, 10.0, 30.0, 0.0),
        ],
    )
    def test_effect_is_settleable_once_nothing_can_land_and_nobody_can_send(
        self, over: float, in_flight: float, unproven: float, left: float
    ) -> None:
        assert left == policy.seconds_in_flight(
            over_seconds=over, in_flight_seconds=in_flight, unproven_seconds=unproven
        )

    def test_run_is_spent_at_its_limit(self) -> None:
        assert [policy.is_spent(a_run(deliveries=n), limit=3) for n in (0, 2, 3, 4)] == [False, False, True, True]

    def test_run_is_recent_for_a_day(self) -> None:
        run = a_run(updated_at=1000.0)
        assert policy.is_recent(run, now=1000.0 + policy.RESUMABLE_SECONDS)
        assert not policy.is_recent(run, now=1001.0 + policy.RESUMABLE_SECONDS)


def test_a_long_series_of_failures_waits_the_longest_delay_and_does_not_overflow() -> None:
    retry = Retry(attempts=10_000, delay_seconds=1.0, factor=1e5, max_delay_seconds=60.0, jitter=0.0)
    assert delay_seconds(retry, failed_attempts=5_000, fraction=0.5) == 60.0


@pytest.mark.parametrize("field", ["delay_seconds", "max_delay_seconds", "factor", "jitter"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_retry_of_numbers_that_are_not_finite_is_refused(field: str, value: float) -> None:
    with pytest.raises(UsageError):
        Retry(**{field: value})  # type: ignore[arg-type]

"""Signals are kept until they are waited for, and delivered once each, in the order of sending."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.session import session
from perdure.errors import DeadlineExceeded, NotInRun, RunWaits, UnknownRun, UnstorableValue, UsageError
from perdure.events import RunEnded, WaitOpened
from perdure.records import Kind
from tests import warm
from tests.crash.nursery import environment
from tests.engine.journals import bodies_of, newest_run, records_of, run_of, state_of
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world
from tests.waits.desk import PATIENCE_SECONDS, UNWRITTEN, WRITTEN, Bell, killed, letters, mails, opened

Agent = Callable[..., Any]
HOUR = 3600.0
waits: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def unedited() -> None:
    waits.clear()
    waits.update(count=1, name="go", timeout=None)


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


@perdure.agent
def listener() -> list[Any]:
    work("before")
    return [heard(perdure.wait_for(waits["name"], timeout=waits["timeout"])) for _ in range(waits["count"])]


@perdure.agent
async def listener_async() -> list[Any]:
    work("before")
    return [heard(await perdure.wait_for(waits["name"], timeout=waits["timeout"])) for _ in range(waits["count"])]


def heard(payload: Any) -> Any:
    world.moment("heard")
    work(f"heard {payload}")
    return payload


both = pytest.mark.parametrize("agent", [listener, listener_async], ids=["sync", "async"])


def wait(agent: Agent = listener) -> RunWaits:
    with pytest.raises(RunWaits) as waiting:
        perdure.run(agent, run_id="r")
    return waiting.value


class TestDelivery:
    @both
    def test_the_run_leaves_memory_and_says_what_it_waits_for(self, agent: Agent) -> None:
        waiting = wait(agent)
        name = run_of("r").name
        assert (waiting.exit_code, waiting.reason) == (3, "signal")
        assert waiting.lines() == [
            f"perdure: Run {name} waits for the signal 'go'.",
            "   safe: its one completed step is saved.",
            f"     do: perdure signal {name} go <json>, then start again",
        ]
        assert state_of("r") == "waiting (signal)"

    def test_a_script_that_waits_prints_three_lines_and_exits_with_3(self, store: Path, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(
            "import perdure\n\n@perdure.agent\ndef agent():\n"
            "    return perdure.wait_for('go')\n\nprint(perdure.run(agent))\n"
        )

        def run() -> subprocess.CompletedProcess[str]:
            return warm.run(
                [sys.executable, str(script)],
                env=environment({"PERDURE_STORE": str(store)}),
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )

        ended = run()
        assert (ended.returncode, ended.stdout) == (3, "")
        assert [line.partition(":")[0] for line in ended.stderr.splitlines()[-3:]] == ["perdure", "   safe", "     do"]
        perdure.signal(newest_run().run_id, "go", {"a": 1})
        assert run().stdout == "{'a': 1}\n"

    @both
    def test_a_signal_while_nobody_runs_is_stored_and_nothing_before_it_runs_again(self, agent: Agent) -> None:
        wait(agent)
        assert world.elsewhere(lambda: perdure.signal("r", "go", {"n": 1}, by="bob")) == 0
        assert perdure.run(agent, run_id="r") == [{"n": 1}]
        assert world.lines == ["before", "heard {'n': 1}"]
        assert letters() == [("signal", True)]
        assert [answer.by for answer in bodies_of("r", Kind.ANSWER)] == ["bob"]

    @both
    def test_a_signal_sent_before_the_wait_is_kept(self, agent: Agent) -> None:
        killed("after:step:main.0#1", lambda: perdure.run(agent, run_id="r"))
        perdure.signal("r", "go", "early")
        assert perdure.run(agent, run_id="r") == ["early"]

    @both
    def test_three_signals_are_delivered_in_order_once_each(self, agent: Agent) -> None:
        waits["count"] = 3
        killed("after:step:main.0#1", lambda: perdure.run(agent, run_id="r"))
        for payload in (1, 2, 3):
            perdure.signal("r", "go", payload)
        assert perdure.run(agent, run_id="r") == [1, 2, 3]
        assert letters() == [("signal", True)] * 3

    @both
    def test_the_same_payload_three_times_is_three_signals(self, agent: Agent) -> None:
        waits["count"] = 3
        wait(agent)
        for _ in range(3):
            perdure.signal("r", "go", "again")
        assert perdure.run(agent, run_id="r") == ["again"] * 3

    def test_other_names_are_left_for_whoever_waits_for_them(self) -> None:
        @perdure.agent
        def agent() -> list[Any]:
            return [perdure.wait_for("second"), perdure.wait_for("first")]

        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        perdure.signal("r", "first", 1)
        with pytest.raises(RunWaits, match="'second'"):
            perdure.run(agent, run_id="r")
        assert letters() == [("signal", False)]
        perdure.signal("r", "second", 2)
        assert perdure.run(agent, run_id="r") == [2, 1]

    @pytest.mark.parametrize("threads", [False, True], ids=["tasks", "threads"])
    def test_two_strands_that_wait_for_the_same_name_get_one_each(self, threads: bool) -> None:
        async def strand() -> Any:
            return await perdure.wait_for("go")

        @perdure.agent
        async def in_tasks() -> list[Any]:
            return list(await asyncio.gather(strand(), strand()))

        @perdure.agent
        def in_threads() -> list[Any]:
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(perdure.wait_for, ["go", "go"]))

        agent: Agent = in_threads if threads else in_tasks
        wait(agent)
        perdure.signal("r", "go", 1)
        wait(agent)
        assert letters() == [("signal", True)]
        perdure.signal("r", "go", 2)
        assert sorted(perdure.run(agent, run_id="r")) == [1, 2]
        assert letters() == [("signal", True)] * 2
        assert len(opened()) == 2

    @pytest.mark.parametrize("threads", [False, True], ids=["tasks", "threads"])
    def test_two_strands_share_two_signals_that_came_at_once(self, threads: bool) -> None:
        async def strand() -> Any:
            return await perdure.wait_for("go")

        @perdure.agent
        async def in_tasks() -> list[Any]:
            return list(await asyncio.gather(strand(), strand()))

        @perdure.agent
        def in_threads() -> list[Any]:
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(perdure.wait_for, ["go", "go"]))

        agent: Agent = in_threads if threads else in_tasks
        wait(agent)
        perdure.signal("r", "go", 1)
        perdure.signal("r", "go", 2)
        assert sorted(perdure.run(agent, run_id="r")) == [1, 2]
        assert letters() == [("signal", True)] * 2

    @pytest.mark.parametrize(
        "payload", [None, 0, "", [1, [2]], {"a": {"b": None}}, 2**70, "text " * 20_000, ("a", 1), {1: 2}, b"bytes"]
    )
    def test_a_payload_comes_back_as_it_went_in(self, payload: Any) -> None:
        wait()
        perdure.signal("r", "go", payload)
        world.killed_at("heard", lambda: perdure.run(listener, run_id="r"))
        assert perdure.run(listener, run_id="r") == [payload]


class TestKills:
    @both
    @pytest.mark.parametrize("side", UNWRITTEN)
    def test_killed_before_the_signal_is_consumed_it_stands(self, agent: Agent, side: str) -> None:
        waits["count"] = 2
        wait(agent)
        perdure.signal("r", "go", 1)
        perdure.signal("r", "go", 2)
        killed(f"{side}:answer:main.1#1", lambda: perdure.run(agent, run_id="r"))
        assert letters() == [("signal", False)] * 2
        assert perdure.run(agent, run_id="r") == [1, 2]

    @both
    @pytest.mark.parametrize("side", WRITTEN)
    def test_killed_right_after_it_was_consumed_the_next_wait_gets_the_next(self, agent: Agent, side: str) -> None:
        waits["count"] = 2
        wait(agent)
        perdure.signal("r", "go", 1)
        perdure.signal("r", "go", 2)
        killed(f"{side}:answer:main.1#1", lambda: perdure.run(agent, run_id="r"))
        assert letters() == [("signal", True), ("signal", False)]
        assert perdure.run(agent, run_id="r") == [1, 2]
        assert world.lines == ["before", "heard 1", "heard 2"]

    @both
    @pytest.mark.parametrize("side", [*UNWRITTEN, *WRITTEN])
    def test_killed_around_the_wait_it_is_recorded_once(self, agent: Agent, side: str) -> None:
        killed(f"{side}:wait:main.1#1", lambda: perdure.run(agent, run_id="r"))
        perdure.signal("r", "go", 1)
        assert perdure.run(agent, run_id="r") == [1]
        assert len(opened()) == 1

    def test_killed_in_the_agent_with_the_payload_at_hand_it_gets_the_same(self) -> None:
        wait()
        perdure.signal("r", "go", 1)
        world.killed_at("heard", lambda: perdure.run(listener, run_id="r"))
        perdure.signal("r", "go", 2)
        assert perdure.run(listener, run_id="r") == [1]
        assert letters() == [("signal", True), ("signal", False)]

    @pytest.mark.parametrize("side", UNWRITTEN)
    def test_a_sender_killed_before_the_signal_is_stored_has_sent_nothing(self, side: str) -> None:
        wait()
        killed(f"{side}:post#1", lambda: perdure.signal("r", "go", 1))
        assert mails() == []

    @pytest.mark.parametrize("side", WRITTEN)
    def test_a_sender_killed_after_the_signal_is_stored_has_sent_it(self, side: str) -> None:
        wait()
        killed(f"{side}:post#1", lambda: perdure.signal("r", "go", 1))
        assert perdure.run(listener, run_id="r") == [1]


class TestTimeouts:
    @both
    def test_without_a_signal_in_time_it_raises_and_a_start_after_that_waits_anew(
        self, agent: Agent, manual_clock: ManualClock
    ) -> None:
        waits["timeout"] = "1h"
        wait(agent)
        assert run_of("r").wake_at == pytest.approx(manual_clock.wall + HOUR)
        manual_clock.pass_seconds(HOUR)
        with pytest.raises(DeadlineExceeded, match="No signal 'go' came in 3600 s"):
            perdure.run(agent, run_id="r")
        assert state_of("r") == "failed"
        wait(agent)
        perdure.signal("r", "go", 1)
        assert perdure.run(agent, run_id="r") == [1]
        assert len(opened()) == 2

    def test_a_signal_in_time_counts_even_if_it_is_consumed_later(self, manual_clock: ManualClock) -> None:
        waits["timeout"] = "1h"
        wait()
        manual_clock.pass_seconds(HOUR - 1)
        perdure.signal("r", "go", 1)
        manual_clock.pass_seconds(HOUR)
        assert perdure.run(listener, run_id="r") == [1]

    def test_a_signal_that_comes_too_late_is_kept_for_the_next_wait(self, manual_clock: ManualClock) -> None:
        waits["timeout"] = "1h"
        wait()
        manual_clock.pass_seconds(HOUR)
        perdure.signal("r", "go", "late")
        with pytest.raises(DeadlineExceeded):
            perdure.run(listener, run_id="r")
        assert perdure.run(listener, run_id="r") == ["late"]

    def test_an_agent_that_catches_the_timeout_sees_it_at_every_replay(self, manual_clock: ManualClock) -> None:
        @perdure.agent
        def agent() -> str:
            try:
                return str(perdure.wait_for("go", timeout=60))
            except DeadlineExceeded as late:
                world.note(str(late))
                world.moment("caught")
                return "late"

        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        manual_clock.pass_seconds(60)
        world.killed_at("caught", lambda: perdure.run(agent, run_id="r"))
        perdure.signal("r", "go", "too late")
        assert perdure.run(agent, run_id="r") == "late"
        assert world.lines == ["No signal 'go' came in 60 s."] * 2

    def test_a_wait_whose_timeout_was_edited_away_ends_by_its_recorded_one(self, manual_clock: ManualClock) -> None:
        waits["timeout"] = "1h"
        wait()
        waits["timeout"] = None
        manual_clock.pass_seconds(HOUR)
        with pytest.raises(DeadlineExceeded, match="in 3600 s"):
            perdure.run(listener, run_id="r")


class TestRefusals:
    @pytest.mark.parametrize("name", ["", "a\nb", "\x00", "\ud800", "x" * 201, None, 5, b"go", "\u200e"], ids=repr)
    def test_a_name_that_nobody_could_type_is_refused(self, name: Any) -> None:
        waits["name"] = name
        with pytest.raises(UsageError, match="signal name") as refused:
            perdure.run(listener, run_id="r")
        assert refused.value.safe == "nothing was sent or recorded."
        assert refused.value.hint
        assert opened() == []
        waits["name"] = "go"
        with pytest.raises(RunWaits):
            perdure.run(listener, run_id="other")
        with pytest.raises(UsageError, match="signal name"):
            perdure.signal("other", name)
        assert mails("other") == []

    @pytest.mark.parametrize("timeout", [-1, float("nan"), True, "soon", 10**400], ids=lambda value: repr(value)[:20])
    def test_a_timeout_that_is_no_duration_is_refused(self, timeout: Any) -> None:
        waits["timeout"] = timeout
        with pytest.raises(UsageError, match="timeout="):
            perdure.run(listener, run_id="r")
        assert opened() == []

    def test_a_name_that_the_agent_does_not_declare_is_refused(self) -> None:
        @perdure.agent(signals=("go", "stop"))
        def agent() -> Any:
            return perdure.wait_for("go")

        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        with pytest.raises(UsageError, match="knows no signal 'og'") as refused:
            perdure.signal("r", "og")
        assert refused.value.hint == "its signals are go, stop"
        assert refused.value.safe == "nothing was sent or recorded."
        assert mails() == []
        perdure.signal("r", "go", 1)
        assert perdure.run(agent, run_id="r") == 1

    @pytest.mark.parametrize("signals", ["go", 5, ["", "go"], [5]], ids=repr)
    def test_signals_that_are_no_names_are_refused_where_the_agent_is_defined(self, signals: Any) -> None:
        with pytest.raises(UsageError):
            perdure.agent(signals=signals)

    def test_a_signal_to_a_completed_run_is_refused(self) -> None:
        wait()
        perdure.signal("r", "go", 1)
        perdure.run(listener, run_id="r")
        with pytest.raises(UsageError, match="is completed") as refused:
            perdure.signal("r", "go", 2)
        assert refused.value.safe == "nothing was sent."
        assert len(mails()) == 1

    def test_a_signal_to_a_cancelled_run_is_refused(self) -> None:
        wait()
        perdure.cancel("r")
        with pytest.raises(UsageError, match="is cancelled"):
            perdure.signal("r", "go")
        assert [mail.kind for mail in mails()] == ["cancel"]

    def test_a_signal_to_nobody_is_refused(self) -> None:
        with pytest.raises(UnknownRun):
            perdure.signal("nobody", "go")

    @pytest.mark.parametrize(
        "payload",
        [object(), {"client": object()}, float("nan"), "\ud800", [print]],
        ids=["object", "object inside", "nan", "surrogate", "function"],
    )
    def test_a_payload_that_cannot_be_stored_is_refused(self, payload: Any) -> None:
        wait()
        with pytest.raises(UnstorableValue, match="payload"):
            perdure.signal("r", "go", payload)
        assert mails() == []

    def test_outside_a_run_nothing_can_be_waited_for(self) -> None:
        with pytest.raises(NotInRun):
            perdure.wait_for("go")

    def test_inside_the_body_of_a_step_it_is_refused(self) -> None:
        @perdure.step
        def body() -> None:
            perdure.wait_for("go")

        @perdure.agent
        def agent() -> None:
            body()

        with pytest.raises(UsageError, match="inside the body of body"):
            perdure.run(agent, run_id="r")
        assert opened() == []


class TestHandles:
    @both
    def test_a_started_run_goes_on_by_itself_after_each_signal(self, agent: Agent) -> None:
        waits["count"] = 2
        with Bell(RunEnded) as bell:
            handle = perdure.start(agent, run_id="r")
            for payload in (1, 2):
                assert bell.wait().reason == "signal"
                perdure.signal("r", "go", payload)
            assert handle.result(PATIENCE_SECONDS) == [1, 2]
        assert world.lines == ["before", "heard 1", "heard 2"]

    def test_a_signal_is_heard_while_another_branch_works(self) -> None:
        begun, got = threading.Event(), threading.Event()

        @perdure.step
        def busy() -> str:
            begun.set()
            assert got.wait(PATIENCE_SECONDS)
            return "worked"

        def listens() -> Any:
            assert begun.wait(PATIENCE_SECONDS)
            payload = perdure.wait_for("go")
            got.set()
            return payload

        @perdure.agent
        def agent() -> list[Any]:
            with ThreadPoolExecutor(2) as pool:
                return [future.result() for future in [pool.submit(listens), pool.submit(busy)]]

        with Bell(WaitOpened) as bell:
            handle = perdure.start(agent, run_id="r")
            bell.wait()
            perdure.signal("r", "go", 1)
            assert handle.result(PATIENCE_SECONDS) == [1, "worked"]
        assert [record.kind for record in records_of("r")].count("delivery") == 1

    def test_a_signal_from_another_process_wakes_it(self) -> None:
        with Bell(RunEnded) as bell:
            handle = perdure.start(listener, run_id="r")
            bell.wait()
            sent = warm.run(
                [sys.executable, "-c", "import perdure; perdure.signal('r', 'go', [1])"],
                env=environment({"PERDURE_STORE": session().store.location}),
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            assert sent.returncode == 0
            assert handle.result(PATIENCE_SECONDS) == [[1]]

    def test_mail_that_nobody_waits_for_does_not_keep_waking_the_run(self) -> None:
        with Bell(RunEnded) as bell:
            handle = perdure.start(listener, run_id="r")
            bell.wait()
            perdure.signal("r", "other")
            bell.wait()
            assert session().store.list_due(now=0) == []
            perdure.signal("r", "go", 1)
            assert handle.result(PATIENCE_SECONDS) == [1]
        assert len(bodies_of("r", Kind.DELIVERY)) == 3

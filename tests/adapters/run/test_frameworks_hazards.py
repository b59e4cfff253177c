"""What is known to go wrong when scripts and frameworks are replayed, each by name."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perdure.adapters.http.wire import made
from perdure.adapters.script import conduct
from perdure.adapters.tools.pending import Pending
from perdure.adapters.tools.seams import SEAMS
from perdure.adapters.tools.seams.link import linked, linked_by_name
from perdure.testing.model_server import ModelServer, tool
from tests.adapters.run.trials import Trial, judge, loaded, uninterrupted
from tests.crash.nursery import Nursery
from tests.sampling import points

Make = Callable[..., Trial]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with loaded("openai") as opened:
        yield opened


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as served:
        yield served


@pytest.fixture
def make(tmp_path: Path, nursery: Nursery, model: ModelServer) -> Make:
    trials: list[Trial] = []

    def hazard(*arguments: str, script: str = "hazards.py", **settings: str) -> Trial:
        trials.append(Trial(tmp_path / f"{len(trials)}", nursery, model, script, arguments, settings))
        return trials[-1]

    return hazard


def killed_everywhere(make: Make, *arguments: str, stride: int = 9) -> Trial:
    """Kill it at every so many moments, and judge; the one that nobody killed."""
    first = make(*arguments)
    whole = uninterrupted(first)
    for moment in points(whole.moments, stride):
        judge(make(*arguments), whole, at=moment)
    return first


def test_prompts_that_differ_only_in_a_date_get_each_its_own_answer(make: Make, model: ModelServer) -> None:
    model.when(containing="2026-01-01").says("the first")
    model.when(containing="2026-01-02").says("the second")
    model.when(containing="today").says("this day")
    killed_everywhere(make, "dates", stride=8)


def test_a_clock_in_a_prompt_reads_the_same_when_it_is_asked_again(make: Make, model: ModelServer) -> None:
    model.says("so be it")
    one = make("dates")
    one.run(kill_at="after:step:=model:2@main#1")
    assert one.finish().returncode == 0
    assert model.count() == 3


def test_identical_prompts_at_once_are_each_answered_once(make: Make, model: ModelServer) -> None:
    model.says("anything")
    first = make("concurrent")
    whole = uninterrupted(first)
    assert (whole.out, whole.requests) == ("anything anything anything\n", 3)
    for moment in points(whole.moments, 5):
        one, before = make("concurrent"), model.count()
        assert one.run(kill_at=moment).returncode == -signal.SIGKILL
        recorded = len(one.journal().completed())
        asked = model.count() - before
        assert one.finish().out == whole.out
        assert model.count() - before == asked + 3 - recorded, moment


def test_what_tools_change_in_memory_is_there_after_a_resume(make: Make, model: ModelServer) -> None:
    model.calls("look", what="a").calls("note", what="b").calls(tool("look", what="c"), tool("note", what="d"))
    model.says("done")
    first = make("memory")
    whole = uninterrupted(first)
    assert whole.out == "done ['a', 'c'] {'calls': 2} 2 ['a', 'c'] {'b': 0, 'd': 1}\n"
    for moment in points([each for each in whole.moments if each.startswith(("after:step", "after:receipt"))], 2):
        judge(make("memory"), whole, at=moment)


def test_an_object_that_tools_reach_by_two_names_is_put_back_once(make: Make, model: ModelServer) -> None:
    model.calls("look", what="a").calls("note", what="b").calls("look", what="c").says("done")
    whole = uninterrupted(make("shared"))
    pages, there = "['a', 'b', 'c']", "['b', 'b']"
    assert whole.out == f"done {{'inner': {{'pages': {pages}, 'count': 2}}, 'open': {there}}} {pages} {there}\n"
    for moment in points([each for each in whole.moments if each.startswith("after:step:=model")], 2):
        judge(make("shared"), whole, at=moment)


def test_a_change_that_cannot_be_stored_is_reported_by_name(make: Make, model: ModelServer) -> None:
    model.calls("look", what="a").says("done")
    ended = make("unstorable").run()
    assert ended.returncode == 0, ended.err
    assert "not protected: look.handles, which the tool look changes: it cannot be stored" in ended.err


def test_two_tools_of_one_name_are_told_apart(make: Make, model: ModelServer) -> None:
    model.conversation(containing="Of one.").calls("order", what="tea").says("ordered here")
    model.conversation(containing="Of the other.").calls("order", what="tea").says("ordered there")
    first = make("same_names")
    whole = uninterrupted(first)
    assert whole.outside.keys() == {"order one:tea", "order other:tea"}
    recorded = [entry.key for entry in first.journal().entries if entry.kind == "receipt"]
    assert len(set(recorded)) == 2
    again = make("same_names")
    again.run(kill_at=next(each for each in reversed(whole.moments) if each.startswith("after:receipt")))
    assert (again.finish().out, again.outside()) == (whole.out, whole.outside)


def test_a_nested_call_is_recorded_once(make: Make, model: ModelServer) -> None:
    model.calls(tool("send_all", to="ada"), tool("send", to="bob")).says("done")
    first = make("nested")
    uninterrupted(first)
    assert [entry.name for entry in first.journal().entries if entry.kind == "intent"] == ["send_all", "send"]


def test_telemetry_on_the_same_client_takes_no_answer_from_a_model_call(make: Make, model: ModelServer) -> None:
    model.when(containing="One.").says("one")
    model.when(containing="Two.").says("two")
    one = make("telemetry")
    assert one.run(kill_at="after:step:=model:0@main#1").returncode == -signal.SIGKILL
    assert one.finish().out == "one 200\ntwo\n"
    assert model.count() == 2


def test_a_stream_that_breaks_off_is_asked_for_again(make: Make, model: ModelServer) -> None:
    model.cuts(after=2).says(["it ", "goes ", "on"])
    ended = make("cut").run()
    assert ended.returncode == 0, ended.err
    assert ended.out.endswith("it goes on\n"), ended.out
    assert model.count() == 2


@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: f"{seam.distribution} in {seam.place}")
def test_a_seam_that_is_missing_in_the_installed_version_is_said(seam: object) -> None:
    why = seam.checked(ModuleType(seam.place))  # type: ignore[attr-defined]
    assert why, "nothing is said of a module that has nothing"
    assert seam.matters in why  # type: ignore[attr-defined]


def test_a_script_whose_seam_is_missing_is_told_so_at_its_start_and_is_protected_by_its_own_functions(
    make: Make, model: ModelServer, tmp_path: Path
) -> None:
    model.calls("send", to="ada").says("all done")
    with loaded() as bare:
        one = Trial(tmp_path / "bare", bare, model, "without_seam.py")
        ended = one.run()
    assert ended.returncode == 0, ended.err
    assert "perdure: NOT PROTECTED as usual: tools of openai-agents (agents.tool has none of" in ended.err
    assert [entry.name for entry in one.journal().entries if entry.kind == "receipt"] == ["send"]


def test_a_seam_takes_hold_though_somebody_else_finds_the_module_first(model: ModelServer, tmp_path: Path) -> None:
    model.calls("post", to="ada").says("all done")
    with loaded() as bare:
        one = Trial(tmp_path / "bare", bare, model, "without_seam.py", ["in front"])
        ended = one.run()
    assert ended.returncode == 0, ended.err
    assert "NOT PROTECTED" not in ended.err
    assert [entry.name for entry in one.journal().entries if entry.kind == "receipt"] == ["post"]


class Executed:
    """A script of which nothing is known but what its models asked for."""

    def __init__(self) -> None:
        self.pending = Pending(lambda _: None)


@pytest.fixture
def pending() -> Iterator[Pending]:
    executed: Any = Executed()
    conduct.begin(executed)
    yield executed.pending
    conduct.end()


def test_a_call_whose_id_a_framework_made_itself_is_known_by_its_name_and_arguments(pending: Pending) -> None:
    pending.note("=model:0@main", [made("", "send", {"to": "ada"}), made("", "send", {"to": "bob"})])
    found = linked("pyd_ai_0c5e", "send", {"to": "bob"})
    assert found is not None
    assert found.call.arguments == {"to": "bob"}
    assert linked("pyd_ai_0c5f", "send", {"to": "eve"}) is None
    assert pending.take(found)
    unprotected = pending.answered("pyd_ai_0c60", "send")
    assert unprotected is not None
    assert unprotected.call.arguments == {"to": "ada"}


def test_of_calls_with_the_same_id_the_one_that_fits_is_performed(pending: Pending) -> None:
    pending.note("=model:0@main/one#0", [made("call_1", "send", {"to": "ada"})])
    pending.note("=model:0@main/one#1", [made("call_1", "send", {"to": "bob"})])
    for to in ("ada", "bob"):
        found = linked("call_1", "send", f'{{"to": "{to}"}}')
        assert found is not None
        assert found.call.arguments == {"to": to}


def test_a_tool_whose_name_stands_behind_that_of_its_server_is_known_where_only_one_can_be_meant(
    pending: Pending,
) -> None:
    pending.note(
        "=model:0@main", [made("call_1", "post__send", {"to": "ada"}), made("call_2", "resend", {"to": "ada"})]
    )
    found = linked_by_name("send", {"to": "ada"})
    assert found is not None
    assert found.call.name == "post__send"
    pending.note("=model:1@main", [made("call_3", "mail__send", {"to": "ada"})])
    assert linked_by_name("send", {"to": "ada"}) is None

"""`perdure show RUN --checkpoint`: one document to act on, true at every step, and as its contract says."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.checkpoint import FORMAT, Checkpoint
from perdure.forms import misfits
from tests.faces.waiting import ASKING, LEFT

DOCS = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (DOCS / "checkpoint.md").read_text(encoding="utf-8")
SCHEMA = json.loads((DOCS / "checkpoint.schema.json").read_text(encoding="utf-8"))
STEP_FIELDS = {"number", "key", "name", "kind", "call"}
HEADINGS = {
    "Checkpoint": "## The document",
    "RunPart": "### Run",
    "Ref": "### Other run",
    "ProgressPart": "### Progress",
    "Position": "### Position",
    "StepPart": "### Step",
    "LastPart": "### Last step",
    "ResourcePart": "### Resource",
    "Kept": "### Artifact",
    "PendingPart": "### Pending call",
    "EffectsPart": "### Effects",
    "EffectPart": "### Effect done",
    "ResultPart": "### Result",
    "DoubtPart": "### Effect in doubt",
    "WaitPart": "### Wait",
    "QuestionPart": "### Question",
    "HolderPart": "### Holder",
    "ErrorPart": "### Error",
}

EVENTFUL = """
    @perdure.step
    def plan(goal: str) -> str:
        return "x" * 2000

    @perdure.effect(keyed=True)
    def reserve(cents: int) -> str:
        if os.environ.get("KILL") == "reserve":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"reserved {cents}"

    @perdure.effect
    def report(text: str) -> str:
        return text

    @perdure.effect
    def pay(cents: int) -> str:
        if os.environ.get("KILL") == "pay":
            os.kill(os.getpid(), signal.SIGKILL)
        return "paid"

    @perdure.step(retry=perdure.Retry(attempts=2, delay_seconds=3600))
    def flaky() -> int:
        raise OSError("nope")

    @perdure.agent(tags={"team": "billing"})
    def work(topic: str) -> str:
        state = perdure.current().state
        state["goal"] = f"pay {topic}"
        text = plan(topic)
        state["phase"] = "reserving"
        perdure.progress(1, 4, "planned")
        reserve(5)
        del state["phase"]
        report(text)
        perdure.progress(3, 4, "paying")
        paid = pay(5)
        if os.environ.get("FLAKY"):
            flaky()
        return paid

    def leave(event):
        os._exit(9)

    if __name__ == "__main__":
        if os.environ.get("FLAKY"):
            perdure.subscribe(leave, perdure.events.AttemptFailed)
        perdure.run(work, "invoice 7")
"""


def checkpoint(place: Any, wanted: str = "-", *arguments: str) -> dict[str, Any]:
    """The document of a run, which must be as the contract says: no field missing, mistyped or undocumented."""
    result = place.perdure("show", wanted, "--checkpoint", *arguments)
    assert result.code == 0, result
    whole: dict[str, Any] = result.json()
    assert misfits(whole, strict(SCHEMA)) == []
    return whole


def strict(schema: Any) -> Any:
    """The same schema, with fields refused that it does not name."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: strict(part) for name, part in schema.items()}
    return {**inner, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else inner


def test_schema_in_the_docs_is_that_of_the_code() -> None:
    generated = msgspec.json.schema(Checkpoint)
    assert {name: SCHEMA[name] for name in generated} == generated
    assert misfits({"format": 1, "extra": 1}, strict(SCHEMA)) != []


def test_every_field_of_the_contract_is_documented_and_no_other() -> None:
    assert set(SCHEMA["$defs"]) - {"RunState", "WaitReason"} == set(HEADINGS)
    for name, heading in HEADINGS.items():
        section = re.split(r"\n##+ ", PAGE.partition(f"\n{heading}\n")[2])[0]
        assert section, heading
        documented = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
        if "The fields of a [step](#step), and:" in section:
            documented |= STEP_FIELDS
        assert documented == set(SCHEMA["$defs"][name]["properties"]), heading
    assert f"`format` is {FORMAT}." in PAGE


def test_example_of_the_docs_is_what_its_script_gives(place: Any) -> None:
    (script,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (shown,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (place.folder / "invoice.py").write_text(script, encoding="utf-8")
    assert place.python("invoice.py").code == 3
    expected, given = json.loads(shown), checkpoint(place)
    assert misfits(expected, strict(SCHEMA)) == []
    assert settled(given) == settled(expected)


def settled(whole: dict[str, Any]) -> Any:
    """The document without what differs from run to run: the run's name, and times."""
    text = json.dumps(whole).replace(whole["run"]["name"], "NAME")
    return json.loads(text, parse_float=lambda number: 0 if float(number) > 1e9 else float(number))


def test_effect_in_doubt_is_told_with_its_key_and_command_beside_those_done(place: Any) -> None:
    place.write("work.py", EVENTFUL)
    assert place.python("work.py", KILL="pay").code == -signal.SIGKILL
    assert place.python("work.py").code == 4
    whole = checkpoint(place)
    run = whole["run"]
    assert (run["state"], run["reason"], run["deliveries"]) == ("waiting", "in_doubt", 2)
    assert (whole["goal"], whole["step"], whole["total"]) == ("pay invoice 7", 3, 4)
    assert whole["working_state"] == {"goal": "pay invoice 7"}
    reserve, report = whole["effects"]["done"]
    assert (reserve["call"], reserve["result"]["value"]) == ("reserve(cents=5)", "reserved 5")
    assert len(reserve["effect_key"]) == 32
    assert set(report["result"]) == {"digest"}
    (doubt,) = whole["effects"]["in_doubt"]
    assert (doubt["number"], doubt["name"], doubt["attempt"]) == (4, "pay", 1)
    assert doubt["effect_key"] not in ("", None, reserve["effect_key"])
    assert doubt["settle"] == whole["next"]
    assert whole["position"]["last"]["name"] == "report"
    assert whole["position"]["next"]["call"] == "pay(cents=5)"
    (error,) = whole["errors"]
    assert error["code"] == "effect_in_doubt"
    assert error["safe"]
    assert error["hint"]
    place.perdure("settle", "-", "pay", "--happened", '"paid by hand"')
    assert checkpoint(place)["effects"]["in_doubt"][0]["verdict"] == "happened"
    assert place.python("work.py").code == 0
    last = checkpoint(place)
    assert (last["run"]["state"], last["effects"]["in_doubt"], last["next"]) == ("completed", [], None)
    paid = last["effects"]["done"][-1]
    assert paid["result"]["value"] == "paid by hand"
    assert "@" in paid["verdict_by"]


def test_document_at_each_step_tells_what_was_known_then(place: Any) -> None:
    place.write("work.py", EVENTFUL)
    place.python("work.py", KILL="reserve")
    assert place.python("work.py").code == 0
    told = [checkpoint(place, "-", "--at", str(step)) for step in range(5)]
    assert [whole["step"] for whole in told] == [0, 1, 2, 3, 4]
    assert [whole["at_step"] for whole in told] == [0, 1, 2, 3, 4]
    assert [whole["run"]["state"] for whole in told] == ["queued", "running", "running", "running", "running"]
    assert [whole["position"]["next"] and whole["position"]["next"]["name"] for whole in told] == [
        "plan", "reserve", "report", "pay", None,
    ]  # fmt: skip
    assert [len(whole["effects"]["done"]) for whole in told] == [0, 0, 1, 2, 3]
    assert [whole["working_state"].get("phase") for whole in told] == [None, None, "reserving", None, None]
    assert [whole["goal"] for whole in told] == ["invoice 7"] + ["pay invoice 7"] * 4
    assert [whole["total"] for whole in told] == [None, None, 4, 4, 4]
    assert [whole["run"]["deliveries"] for whole in told] == [0, 1, 2, 2, 2]
    assert told[0]["holder"] is None
    assert told[1]["holder"]["pid"] != told[2]["holder"]["pid"]


def test_failed_attempt_is_pending_with_its_time_and_error(place: Any) -> None:
    place.write("work.py", EVENTFUL)
    assert place.python("work.py", FLAKY="1").code == 9
    whole = checkpoint(place)
    (pending,) = whole["pending"]
    assert (pending["name"], pending["status"], pending["attempt"]) == ("flaky", "retrying", 2)
    assert pending["next_at"] > whole["made_at"]
    assert pending["error"] == "OSError: nope"
    assert whole["errors"][-1]["step"] == pending["key"]
    assert whole["run"]["state"] == "queued"
    assert whole["holder"]["alive"] is False


def test_live_holder_and_the_effect_it_performs_are_named(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.effect
        def deploy() -> str:
            print("ready", flush=True)
            time.sleep(60)
            return "done"

        @perdure.agent
        def work() -> str:
            return deploy()

        if __name__ == "__main__":
            perdure.run(work)
        """,
    )
    process = place.start("work.py")
    whole = checkpoint(place)
    assert (whole["holder"]["pid"], whole["holder"]["alive"]) == (process.pid, True)
    assert whole["holder"]["beat_at"] <= whole["made_at"]
    assert [(call["name"], call["status"]) for call in whole["pending"]] == [("deploy", "performing")]
    assert whole["effects"]["in_doubt"] == []
    process.kill()
    process.wait()
    whole = checkpoint(place)
    assert (whole["run"]["state"], whole["holder"]["alive"], whole["pending"]) == ("queued", False, [])
    assert [effect["name"] for effect in whole["effects"]["in_doubt"]] == ["deploy"]


def test_waits_are_told_with_question_child_signal_and_command(place: Any) -> None:
    place.write("work.py", ASKING)
    place.python("-c", LEFT, "parent", "RunEnded", "child")
    runs = {run["agent"]: run["name"] for run in place.runs()}
    (waits,) = checkpoint(place, runs["work.parent"])["waits"]
    assert (waits["reason"], waits["child"]["name"], waits["child"]["reason"]) == (
        "child",
        runs["work.choose"],
        "human",
    )
    child = checkpoint(place, runs["work.choose"])
    assert child["run"]["parent"]["name"] == runs["work.parent"]
    (asked,) = child["waits"]
    assert asked["question"]["options"] == ["send", "discard"]
    assert asked["question"]["show"] == {"facts": "facts about ada"}
    assert asked["command"] == f"perdure answer {runs['work.choose']} <send|discard>"
    assert asked["came_by"] is None
    place.perdure("answer", runs["work.choose"], "send", "--by", "Ada")
    assert checkpoint(place, runs["work.choose"])["waits"][0]["came_by"] == "Ada"
    place.python("work.py", "listen")
    (listens,) = checkpoint(place)["waits"]
    assert (listens["reason"], listens["signal"]) == ("signal", "go")


def test_resources_and_artifacts_are_told_with_their_fingerprints(place: Any) -> None:
    place.write(
        "work.py",
        """
        from perdure import resources

        @perdure.agent
        def work() -> None:
            pathlib.Path("report.txt").write_text("one")
            perdure.track(resources.file("report.txt"))
            perdure.artifact("report.txt")
            perdure.ask("Fine?")

        perdure.run(work)
        """,
    )
    assert place.python("work.py").code == 3
    whole = checkpoint(place)
    (resource,) = whole["resources"]
    assert (resource["kind"], resource["state"], resource["on_change"]) == ("file", "present", "park")
    assert resource["identity"].endswith("report.txt")
    assert resource["digest"]
    (kept,) = whole["artifacts"]
    assert (kept["name"], kept["size"]) == ("report.txt", 3)
    assert checkpoint(place, "-", "--at", "0")["resources"] == []


@pytest.mark.parametrize("step", ["99", "-1", "x", "", "1.5", "٣", "9" * 50])
def test_step_that_was_never_reached_is_refused_in_three_lines(agent: Any, step: str) -> None:
    agent.python("work.py", "1")
    result = agent.perdure("show", "-", "--checkpoint", "--at", step)
    assert result.code == 2, result
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) == 3, result


def test_options_that_do_not_go_together_are_refused(agent: Any) -> None:
    agent.python("work.py", "1")
    for arguments in (["--at", "1"], ["-", "--at", "1"]):
        result = agent.perdure("show", *arguments)
        assert result.code == 2, result
        assert len(result.err.splitlines()) == 3, result

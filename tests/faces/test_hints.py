"""What a command says to type next: it can be typed, means the same run tomorrow, and does not lead in a circle."""

from __future__ import annotations

import re
from typing import Any

import pytest

from perdure.cli import COMMANDS
from tests.faces.many import many
from tests.faces.test_command import NEED_NO_STORE, Stores, filled, takes_run

HINT = re.compile(r"(?:do|next|fix|see): (.*)")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def test_no_hint_calls_a_run_by_the_mark_for_the_newest(stores: Stores) -> None:
    verbs = list(filter(takes_run, COMMANDS))
    for verb, result in zip(verbs, many(stores, ([verb, *filled(verb, "-")] for verb in verbs)), strict=True):
        hints = HINT.findall(result.out + result.err)
        assert not any("-" in hint.split() for hint in hints), (verb, result)
    for words in (["cancel", "-"], ["fork", "-", "--at", "0"]):
        refused = stores.perdure(*words)
        if "needs your word" in refused.err:
            assert stores.name() in refused.err.splitlines()[-1]


def test_run_is_not_compared_with_itself(stores: Stores) -> None:
    result = stores.perdure("diff", "twin-1", "twin-1")
    assert result.code == 2, result
    assert "is to be compared with itself" in result.err


def test_several_runs_that_begin_alike_are_named_by_what_begins_so(stores: Stores) -> None:
    error = stores.perdure("show", "twin-").err
    assert re.search(r"2 runs begin with 'twin-': twin-\d \(\S+\), twin-\d \(\S+\)\.", error), error


def test_mistyped_id_of_ones_own_is_recognized(stores: Stores) -> None:
    assert "did you mean twin-1" in stores.perdure("show", "twn-1").err


@pytest.mark.parametrize("verb", [verb for verb in COMMANDS if verb not in NEED_NO_STORE])
def test_damaged_file_does_not_send_in_a_circle(stores: Stores, verb: str) -> None:
    damaged = stores.folder / "damaged.db"
    if not damaged.exists():
        damaged.write_bytes(stores.database.read_bytes()[:20_000])
    for file, said in ((damaged.name, "put back a copy"), ("work.py", "name another path")):
        words = [verb, *filled(verb, "twin-1"), "--store", file]
        if verb == "worker":
            words = ["worker", "work.py", "--store", file]
        result = stores.perdure(*words)
        assert result.code == 6, result
        hint = result.err.splitlines()[-1]
        assert said in hint, result
        assert "perdure verify" not in hint
        assert "perdure repair" not in hint


def test_folder_is_answered_with_the_store_that_is_in_it(stores: Stores) -> None:
    result = stores.perdure("ps", "--store", ".")
    assert result.code == 6, result
    assert result.err.splitlines()[-1].endswith(f"name a file in it: {stores.database}"), result


def test_run_that_is_whole_is_named_by_its_name(stores: Stores) -> None:
    assert stores.perdure("repair", "-").out == f"Nothing to repair: {stores.name()} is whole.\n"


def test_denied_approval_is_told_as_something_to_be_asked_again(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.effect(approve=True)
        def wire(cents: int) -> None:
            pass

        @perdure.agent
        def work() -> None:
            wire(1)
        """,
    )
    assert place.perdure("run", "work.py:work").code == 3
    place.perdure("reject", "-")
    result = place.perdure("resume", "-", "--app", "work.py")
    assert result.code == 1, result
    assert "to be asked once more: perdure resume " in result.err


DYING = """
    def die():
        if os.environ.get("KILL"):
            os.kill(os.getpid(), 9)

    @perdure.step
    def look() -> None:
        pass

    @perdure.effect
    def pay() -> None:
        die()

    @perdure.agent
    def plain() -> None:
        look()
        die()

    @perdure.agent
    def pays() -> None:
        pay()

    @perdure.agent
    def asks() -> str:
        perdure.subscribe(lambda event: die(), perdure.events.WaitOpened)
        return perdure.ask("Do this?\\nnext: perdure approve all").value
"""


@pytest.fixture
def dead(place: Any) -> Any:
    """A folder with three runs whose processes died: amid a step, inside an effect, and while it asked."""
    place.write("work.py", DYING)
    for agent in ("asks", "pays", "plain"):
        place.perdure("run", f"work.py:{agent}", "--id", f"my-{agent}", KILL="1")
    return place


def test_dead_run_that_will_need_a_person_comes_before_one_that_will_not(dead: Any) -> None:
    runs = dead.perdure("ps", "--json").json()["runs"]
    assert [run["agent"] for run in runs] == ["work.pays", "work.asks", "work.plain"]
    pays, asks, plain = runs
    assert pays["cause"].endswith("; pay was begun and may have happened")
    assert "; it will ask: Do this?" in asks["cause"]
    assert plain["cause"].startswith("its process died (pid ")
    assert plain["cause"].endswith(")")
    assert {run["next"] for run in runs} == {f"perdure resume {run['name']} --app work.py" for run in runs}
    assert "died asking" in dead.perdure("ps").out


def test_id_that_somebody_chose_is_listed(dead: Any) -> None:
    for verb in ("ps", "ls"):
        shown = dead.perdure(verb).out
        assert all(f" my-{agent} " in shown for agent in ("asks", "pays", "plain")), shown
    dead.perdure("run", "work.py:plain", "--fresh")
    made = dead.runs()[0]["run_id"]
    assert made not in dead.perdure("ls").out


def test_no_line_of_a_question_looks_like_one_of_ours(dead: Any) -> None:
    shown = [dead.perdure(*words) for words in (["ps"], ["ls"], ["inbox"], ["show", "my-asks"])]
    shown.append(dead.perdure("resume", "my-asks", "--app", "work.py"))
    shown += [dead.perdure(*words) for words in (["ps"], ["ls"], ["inbox"], ["show", "my-asks"], ["doctor"])]
    for result in shown:
        for line in (result.out + result.err).splitlines():
            assert not line.lstrip().startswith("next: perdure approve all") or line.startswith(" " * 9), result


def test_held_run_is_not_said_to_have_stopped(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.step
        def look() -> None:
            pass

        @perdure.agent
        def work() -> None:
            look()
            print("ready", flush=True)
            time.sleep(60)
        """,
    )
    place.start("-P", "-m", "perdure", "run", "work.py:work")
    result = place.perdure("resume", "-", "--app", "work.py")
    assert result.code != 0
    assert "stopped" not in result.err
    assert "not repeated" not in result.err
    assert "held" in result.err


def test_script_that_only_defines_agents_says_that_nothing_was_run(place: Any) -> None:
    place.write("work.py", DYING)
    result = place.perdure("run", "work.py")
    assert result.code == 0
    assert "only defines 3 agents; nothing was run. Name one: perdure run work.py:plain" in result.err
    place.write("calls.py", DYING + "\n    perdure.run(plain)\n")
    assert "nothing was run" not in place.perdure("run", "calls.py").err


def test_values_that_cannot_be_meant_are_refused_in_words_of_the_command_line(stores: Stores) -> None:
    for words, said in (
        (["gc", "--keep", "abc"], "--keep 90s, --keep 8h"),
        (["fork", "twin-1", "--at", "x"], "fork: --at takes a whole number: 'x' is none."),
        (["ls", "--since", ""], "--since is empty."),
        (["ls", "--agent", ""], "--agent is empty."),
        (["run", ""], "'' names no script and no agent."),
    ):
        result = stores.perdure(*words)
        assert result.code == 2, result
        assert said in result.err, result
        assert "timedelta" not in result.err
    assert "did you mean" not in stores.perdure("run", "nofile.py").err


def test_export_makes_no_folder_that_was_not_asked_for(stores: Stores) -> None:
    result = stores.perdure("export", "twin-1", "-o", "no/such/file")
    assert result.code == 6, result
    assert not (stores.folder / "no").exists()


def test_list_of_everything_does_not_name_another_list_for_it(place: Any) -> None:
    place.write("work.py", DYING)
    place.perdure("run", "work.py:plain")
    assert "lists them" in place.perdure("ps").out
    assert "lists them" not in place.perdure("ps", "-a").out

"""`perdure undo`: names what it takes back, takes it back once, and says what it leaves."""

from __future__ import annotations

import signal

import pytest

from tests.faces.conftest import Place
from tests.faces.terminal import typed

TRIP = """
    import helper

    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    def cancel(result: str, what: str) -> str:
        log(f"cancel {what} {result}")
        if os.environ.get("KILL") == f"cancel {what}":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ.get("REFUSE") == what:
            raise ConnectionRefusedError("nobody listens")
        return "cancelled"

    @perdure.effect(undo=cancel)
    def book(what: str) -> str:
        log(f"book {what}")
        return f"id-{what}"

    @perdure.effect
    def send(to: str) -> str:
        return "sent"

    @perdure.agent
    def trip(end: str) -> str:
        book("flight")
        send("ada")
        helper.rent("car")
        book("hotel")
        if end == "fail" and "ROOM" not in os.environ:
            raise ValueError("no room")
        if end == "ask":
            perdure.ask("Go?", options=["yes", "no"])
        return "booked"

    @perdure.agent(undo_on_failure=True)
    def careful(end: str) -> str:
        book("flight")
        raise ValueError("no room")

    @perdure.agent
    def idle(end: str) -> str:
        return "nothing"

    @perdure.agent
    def parent(end: str) -> str:
        return perdure.start(trip, end).result()

    if __name__ == "__main__":
        print(perdure.run(globals()[sys.argv[1]], sys.argv[2]))
"""
HELPER = """
    def give_back(result: str, what: str) -> None:
        with open("log.txt", "a") as file:
            file.write(f"give back {what}\\n")

    @perdure.effect(undo=give_back)
    def rent(what: str) -> str:
        return what
"""
RACING = """
    import subprocess

    command = [sys.executable, "-P", "-m", "perdure", "retry", os.environ["WINS"], "--app", "trip.py"]
    subprocess.run(command, check=True, env={**os.environ, "ROOM": "1"})
"""
TAKEN_BACK = ["cancel hotel id-hotel", "give back car", "cancel flight id-flight"]


@pytest.fixture
def trip(place: Place) -> Place:
    """A folder with `trip.py` and a completed run."""
    place.write("helper.py", HELPER)
    place.write("trip.py", TRIP)
    assert place.python("trip.py", "trip", "end").code == 0
    return place


def taken_back(place: Place) -> list[str]:
    return [line for line in place.lines("log.txt") if not line.startswith("book")]


def test_undo_needs_a_word_and_names_what_it_takes_back_and_what_it_leaves(trip: Place) -> None:
    refused = trip.perdure("undo", "-", "--app", "trip.py")
    assert refused.code == 2
    assert refused.out.splitlines()[1:] == [
        "     4  book(what='hotel')  by cancel",
        "     3  rent(what='car')  by give_back",
        "     1  book(what='flight')  by cancel",
        "     2  send(to='ada')  not taken back: it has no undo",
    ]
    assert "book(what='hotel'), rent(what='car'), book(what='flight')" in refused.err
    assert refused.err.splitlines()[-1].endswith(f"perdure undo {trip.name()} --app trip.py --yes")
    assert taken_back(trip) == []
    assert len(trip.runs()) == 1


def test_undo_asks_on_a_terminal_and_no_undoes_nothing(trip: Place) -> None:
    name = trip.name()
    shown = typed(trip, ["undo", name, "--app", "trip.py"], b"n\n", code=2)
    assert f"Take back 3 effects of run {name}?" in shown
    assert (taken_back(trip), len(trip.runs())) == ([], 1)


def test_dry_run_only_lists(trip: Place) -> None:
    listed = trip.perdure("undo", "-", "--app", "trip.py", "--dry-run")
    assert listed.code == 0
    assert "by give_back" in listed.out
    assert (taken_back(trip), len(trip.runs())) == ([], 1)


def test_undo_takes_back_newest_first_and_the_run_says_so(trip: Place) -> None:
    name = trip.name()
    done = trip.perdure("undo", name, "--app", "trip.py", "--yes")
    assert done.code == 0, done
    assert taken_back(trip) == TAKEN_BACK
    undoing = trip.name()
    assert f"its effects were taken back by {undoing}" in trip.perdure("show", name).out
    assert f"its effects were taken back by {undoing}" in trip.perdure("ls").out


def test_a_second_undo_reports_the_first_and_needs_no_code(trip: Place) -> None:
    name = trip.name()
    trip.perdure("undo", name, "--app", "trip.py", "--yes")
    undoing = trip.name()
    again = trip.perdure("undo", name)
    assert again.code == 0
    assert again.out.splitlines() == [
        f"{name}  its effects were taken back by {undoing}: perdure show {undoing}",
        "     2  send(to='ada')  not taken back: it was not taken back then",
    ]
    told = trip.perdure("undo", name, "--json").json()
    assert [each["call"] for each in told["taken_back"]] == [
        "book(what='hotel')",
        "rent(what='car')",
        "book(what='flight')",
    ]
    assert trip.perdure("undo", undoing, "--yes").out == again.out
    assert taken_back(trip) == TAKEN_BACK


def test_killed_inside_an_undo_it_is_in_doubt_and_goes_on_once_settled(trip: Place) -> None:
    name = trip.name()
    killed = trip.perdure("undo", name, "--app", "trip.py", "--yes", KILL="cancel flight")
    assert killed.code == -signal.SIGKILL
    stopped = trip.perdure("undo", name, "--app", "trip.py", "--yes")
    assert stopped.code == 4, stopped
    undoing = trip.runs()[0]
    assert (undoing["agent"], undoing["reason"]) == ("perdure.undo", "in_doubt")
    assert undoing["next"].startswith(f"perdure settle {undoing['name']}")
    assert trip.perdure("settle", undoing["name"], "undo book", "--happened", '"cancelled"').code == 0
    after = trip.runs()[0]
    assert after["next"] == f"perdure undo {undoing['name']} --app trip.py"
    assert trip.perdure("undo", undoing["name"], "--app", "trip.py", "--yes").code == 0
    assert taken_back(trip) == TAKEN_BACK


def test_an_undo_that_fails_says_how_to_go_on_and_does(trip: Place) -> None:
    name = trip.name()
    failed = trip.perdure("undo", name, "--app", "trip.py", "--yes", REFUSE="flight")
    assert failed.code == 1
    assert f"perdure undo {name} --app trip.py" in failed.err.splitlines()[-1]
    assert trip.perdure("undo", name, "--app", "trip.py", "--yes").code == 0
    assert taken_back(trip) == [*TAKEN_BACK, TAKEN_BACK[-1]]


def test_without_the_code_nothing_is_undone_and_the_command_is_named(trip: Place) -> None:
    refused = trip.perdure("undo", "-", "--yes")
    assert refused.code == 2
    assert refused.err.splitlines()[-1].endswith(f"perdure undo {trip.name()} --app trip.py")


def test_code_without_the_effects_leaves_them_and_says_so(trip: Place) -> None:
    trip.write("other.py", "")
    listed = trip.perdure("undo", "-", "--app", "other.py", "--yes")
    assert listed.code == 0
    assert listed.out.count("its code is not there") == 4
    assert "another --app may" in listed.out
    assert len(trip.runs()) == 1


def test_a_failed_run_is_undone_and_never_resumed(trip: Place) -> None:
    assert trip.python("trip.py", "trip", "fail").code == 1
    name = trip.name()
    assert trip.perdure("undo", name, "--app", "trip.py", "--yes").code == 0
    assert taken_back(trip) == TAKEN_BACK
    refused = trip.perdure("resume", name, "--app", "trip.py")
    assert refused.code == 2
    assert "taken back" in refused.err
    assert "Nothing to resume" in trip.perdure("resume").out
    assert "can be resumed" not in trip.perdure("gc", "--keep", "0s").out
    forked = trip.perdure("fork", name, "--yes")
    assert (forked.code, "can go on as well" in forked.out) == (0, False)
    cancelled = trip.perdure("cancel", name, "--yes")
    assert f"{name}  cancelled; its effects were taken back before\n" in cancelled.out


def test_an_unfinished_run_must_be_cancelled_first(trip: Place) -> None:
    assert trip.python("trip.py", "trip", "ask").code == 3
    name = trip.name()
    refused = trip.perdure("undo", name, "--app", "trip.py", "--yes")
    assert refused.code == 2
    assert f"perdure cancel {name}, then: perdure undo {name}" in refused.err
    assert trip.perdure("cancel", name, "--yes").code == 0
    assert trip.perdure("undo", name, "--app", "trip.py", "--yes").code == 0
    assert taken_back(trip) == TAKEN_BACK


def test_a_run_that_undid_itself_has_nothing_left(trip: Place) -> None:
    assert trip.python("trip.py", "careful", "x").code == 1
    done = trip.perdure("undo", "-")
    assert (done.code, done.out) == (
        0,
        f"{trip.name()}  1 effect taken back before; nothing is left to undo\n",
    )


def test_a_run_without_effects_has_nothing_to_undo(trip: Place) -> None:
    assert trip.python("trip.py", "idle", "x").code == 0
    assert "has done nothing that could be taken back" in trip.perdure("undo", "-").out


def test_the_runs_that_a_run_started_are_named_with_their_own_command(trip: Place) -> None:
    assert trip.python("trip.py", "parent", "end").code == 0
    parent, child = (
        next(run["name"] for run in trip.runs() if run["agent"] == f"trip.{name}") for name in ("parent", "trip")
    )
    done = trip.perdure("undo", parent)
    assert "has done nothing that could be taken back" in done.out
    assert f"{child} (trip.trip) is a run of its own: perdure undo {child}" in done.out


def test_resume_of_a_run_that_takes_back_names_the_command_that_goes_on(trip: Place) -> None:
    name = trip.name()
    assert trip.perdure("undo", name, "--app", "trip.py", "--yes", REFUSE="hotel").code == 1
    undoing = trip.name()
    refused = trip.perdure("resume", undoing, "--app", "trip.py")
    assert refused.code == 2
    assert refused.err.splitlines()[-1].endswith(f"perdure undo {undoing} --app trip.py")
    assert f"{undoing} is to take its effects back (failed)" in trip.perdure("show", name).out
    assert trip.perdure("undo", name, "--app", "trip.py", "--yes").code == 0
    assert taken_back(trip) == [TAKEN_BACK[0], *TAKEN_BACK]


def test_an_undo_that_was_cancelled_in_the_middle_is_gone_on_with_by_another(trip: Place) -> None:
    name = trip.name()
    assert trip.perdure("undo", name, "--app", "trip.py", "--yes", REFUSE="flight").code == 1
    undoing = trip.name()
    assert trip.perdure("cancel", undoing, "--yes").code == 0
    meant = next(run for run in trip.runs() if run["name"] == name)
    assert meant["cause"] == f"{undoing} was cancelled while it took its effects back"
    done = trip.perdure(*meant["next"].split()[1:], "--yes")
    assert done.code == 0, done
    assert "1 effect to take back, newest first\n" in done.out
    assert done.out.count("taken back before\n") == 2
    assert taken_back(trip) == [*TAKEN_BACK, TAKEN_BACK[-1]]
    assert f"its effects were taken back by {trip.name()}" in trip.perdure("show", name).out


def test_an_undo_that_lost_the_race_leaves_nothing_behind_that_asks_for_it(trip: Place) -> None:
    """The run is resumed, and completes, after its effects were looked at and before they are taken back."""
    trip.write("racing.py", RACING)
    assert trip.python("trip.py", "trip", "fail").code == 1
    name = trip.name()
    lost = trip.perdure("undo", name, "--app", "trip.py", "--app", "racing.py", "--yes", WINS=name)
    assert lost.code == 2, lost
    assert f"Run {name} has gone on meanwhile." in lost.err
    assert taken_back(trip) == []
    states = {run["agent"]: (run["state"], run["cause"], run["next"]) for run in trip.runs()[:2]}
    assert states == {"perdure.undo": ("cancelled", "", ""), "trip.trip": ("completed", "", "")}
    assert "perdure undo" not in trip.perdure("ps").out
    assert trip.perdure("undo", name, "--app", "trip.py", "--yes").code == 0
    assert taken_back(trip) == TAKEN_BACK


ELSEWHERE = ("--store", "elsewhere/perdure.db")


@pytest.mark.parametrize("end", ["end", "fail"])
def test_a_run_whose_effects_were_taken_back_is_so_wherever_it_is_carried(trip: Place, end: str) -> None:
    assert trip.python("trip.py", "trip", end).code == (1 if end == "fail" else 0)
    name = trip.name()
    assert trip.perdure("undo", name, "--app", "trip.py", "--yes").code == 0
    undoing = trip.runs()[0]["run_id"]
    said = trip.perdure("export", name, "-o", "run.jsonl")
    assert f"by runs that must come along: perdure export {undoing}\n" in said.out
    alone = trip.perdure("import", "run.jsonl", *ELSEWHERE)
    assert alone.code == 2, alone
    assert f"taken back by run '{undoing}', which is not here" in alone.err
    assert trip.perdure("export", undoing, "-o", "undo.jsonl").code == 0
    both = trip.perdure("import", "run.jsonl", "undo.jsonl", *ELSEWHERE)
    assert (both.code, "parked" in both.out) == (0, False)
    assert trip.perdure("resume", name, "--app", "trip.py", *ELSEWHERE).code == (2 if end == "fail" else 0)
    again = trip.perdure("undo", name, "--app", "trip.py", "--yes", *ELSEWHERE)
    assert "its effects were taken back by" in again.out
    assert taken_back(trip) == TAKEN_BACK


def test_an_undo_that_was_carried_elsewhere_in_its_middle_goes_on_there_when_it_is_asked_for(trip: Place) -> None:
    name = trip.name()
    assert trip.perdure("undo", name, "--app", "trip.py", "--yes", REFUSE="flight").code == 1
    undoing = trip.runs()[0]["run_id"]
    assert trip.perdure("export", name, undoing, "-o", "both").code == 0
    files = [str(file) for file in (trip.folder / "both").iterdir()]
    assert trip.perdure("import", *files, *ELSEWHERE).code == 0
    again = trip.perdure("undo", name, "--app", "trip.py", "--yes", *ELSEWHERE)
    assert again.code == 0, again
    assert taken_back(trip) == [*TAKEN_BACK, TAKEN_BACK[-1]]


def test_a_run_that_took_its_effects_back_itself_is_so_wherever_it_is_carried(trip: Place) -> None:
    assert trip.python("trip.py", "careful", "x").code == 1
    name = trip.name()
    assert trip.perdure("export", name, "-o", "run.jsonl").code == 0
    taken = trip.perdure("import", "run.jsonl", *ELSEWHERE)
    assert (taken.code, "parked" in taken.out) == (0, False)
    before = trip.lines("log.txt")
    trip.perdure("resume", name, "--app", "trip.py", *ELSEWHERE)
    assert (
        trip.perdure("undo", name, *ELSEWHERE).out == f"{name}  1 effect taken back before; nothing is left to undo\n"
    )
    assert trip.lines("log.txt") == before


def test_json_tells_what_was_taken_back_and_what_was_left(trip: Place) -> None:
    made = trip.perdure("undo", "-", "--app", "trip.py", "--yes", "--json").json()
    assert [each["name"] for each in made["taken_back"]] == ["book", "rent", "book"]
    assert [(each["name"], each["why"]) for each in made["left"]] == [("send", "it has no undo")]
    assert (made["is_done"], made["undo"]["state"]) == (True, "completed")

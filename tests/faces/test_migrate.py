"""`perdure migrate --from … --to …`: runs of real agents move between stores, and go on where they are."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from perdure.records import FINISHED, Schedule, sealed_schedule
from perdure.store import open_store
from perdure.store.moving import has_left, is_arriving
from perdure.store.protocol import EVERY, Which
from tests.faces.conftest import Place
from tests.faces.moving import on_terminal
from tests.postgres import schema_url
from tests.sampling import every
from tests.summary import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Run
    from perdure.store.protocol import Store, Whole

AGENTS = """
    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    @perdure.step
    def fetch(name: str, page: int) -> str:
        log(f"fetch {name} {page}")
        return "x" * 50_000 if name == "large" else f"page {page}"

    @perdure.effect
    def send(name: str) -> str:
        log(f"send {name}")
        if os.environ.get("KILL") == "send":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"sent {name}"

    @perdure.agent
    def report(name: str) -> str:
        for page in range(3):
            fetch(name, page)
            if os.environ.get("KILL") == str(page):
                os.kill(os.getpid(), signal.SIGKILL)
        return send(name)

    @perdure.agent
    def asks(name: str) -> str:
        fetch(name, 0)
        return send(f"{name} {perdure.ask('Send?', options=['yes', 'no']).choice}")

    @perdure.agent
    def parent(name: str) -> str:
        return perdure.start(asks, f"{name} below").result()

    if __name__ == "__main__":
        agent = {"report": report, "asks": asks, "parent": parent}[sys.argv[1]]
        print(perdure.run(agent, sys.argv[2], run_id=sys.argv[2]))
"""


class Desk:
    """A folder with agents, the store in it, and another store to move to."""

    def __init__(self, place: Place, stores: tuple[str, str]) -> None:
        self.place = place
        self.source, self.target = stores
        place.environment["PERDURE_STORE"] = self.source
        place.write("work.py", AGENTS)

    def fill(self) -> None:
        """A run that completed, one that died at a page, one with an effect in doubt, one that waits, a family."""
        assert self.place.python("work.py", "report", "done").code == 0
        assert self.place.python("work.py", "report", "large", KILL="1").code == -signal.SIGKILL
        assert self.place.python("work.py", "report", "doubt", KILL="send").code == -signal.SIGKILL
        assert self.place.python("work.py", "asks", "asked").code == 3
        assert self.place.python("work.py", "parent", "family").code == 3
        if self.source.startswith("postgresql"):
            _forget_the_dead(self.source)

    def migrate(self, *options: str, back: bool = False) -> Any:
        ends = (self.target, self.source) if back else (self.source, self.target)
        return self.place.perdure("migrate", "--from", ends[0], "--to", ends[1], *options)

    def at(self, store: str) -> dict[str, Whole]:
        with contextlib.closing(open_store(store, create=False)) as opened:
            return _wholes(opened)


def _wholes(store: Store) -> dict[str, Whole]:
    return {run.run_id: store.load_whole(run.run_id) for run in store.find_runs(Which(), limit=EVERY)}


def _forget_the_dead(url: str) -> None:
    """Processes that this test killed are proved dead on this machine; nothing is left to wait for."""
    with contextlib.closing(open_store(url)) as store:
        assert not any(
            store.is_alive(worker.worker_id, stall_seconds=1e9)
            for worker in store.list_workers()
            if worker.pid != os.getpid()
        )


def moves(usual: str, other: str) -> pytest.MarkDecorator:
    """Move from the one store to the other; the other way round in the exhaustive tests."""
    return pytest.mark.parametrize("desk", [usual, pytest.param(other, marks=pytest.mark.exhaustive)], indirect=True)


to_a_server = moves("sqlite-postgres", "postgres-sqlite")
to_a_file = moves("postgres-sqlite", "sqlite-postgres")


@pytest.fixture
def desk(request: pytest.FixtureRequest, place: Place) -> Iterator[Desk]:
    with schema_url() as url:
        path = str(place.folder / "store.db")
        yield Desk(place, (path, url) if request.param == "sqlite-postgres" else (url, path))


def _can_go_on(run: Run | None) -> bool:
    return run is not None and run.state not in FINISHED and not (has_left(run) or is_arriving(run))


@to_a_server
def test_moved_runs_go_on_at_the_first_step_that_had_not_completed(desk: Desk) -> None:
    desk.fill()
    moved = desk.migrate("--json")
    assert moved.code == 0, moved
    counts = moved.json()["moved"]
    assert (counts["moved"], counts["copied"], counts["left"]) == (5, 1, [])
    desk.place.environment["PERDURE_STORE"] = desk.target
    before = desk.place.lines("log.txt")
    assert desk.place.python("work.py", "report", "done").out == "sent done\n"
    assert desk.place.python("work.py", "report", "large").out == "sent large\n"
    assert desk.place.perdure("answer", "asked", "yes").code == 0
    assert desk.place.python("work.py", "asks", "asked").out == "sent asked yes\n"
    in_doubt = desk.place.python("work.py", "report", "doubt")
    assert in_doubt.code == 4, in_doubt
    assert desk.place.perdure("settle", "doubt", "send", "--happened", '"sent by hand"').code == 0
    assert desk.place.python("work.py", "report", "doubt").out == "sent by hand\n"
    assert desk.place.lines("log.txt")[len(before) :] == ["fetch large 2", "send large", "send asked yes"]


@to_a_file
def test_child_and_parent_go_on_together_where_they_were_moved(desk: Desk) -> None:
    desk.fill()
    assert desk.migrate().code == 0
    desk.place.environment["PERDURE_STORE"] = desk.target
    (child,) = [run for run in desk.place.runs() if run["agent"].endswith("asks") and run["run_id"] != "asked"]
    assert desk.place.perdure("answer", child["run_id"], "no").code == 0
    assert desk.place.python("work.py", "parent", "family").out == "sent family below no\n"
    assert desk.place.lines("log.txt").count("fetch family below 0") == 1


@to_a_server
def test_script_that_is_started_at_the_old_store_is_told_where_its_run_went(desk: Desk) -> None:
    desk.fill()
    desk.migrate()
    before = desk.place.lines("log.txt")
    for words in (["asks", "asked"], ["report", "large"], ["report", "doubt"]):
        told = desk.place.python("work.py", *words)
        assert told.code == 5, told
        lines = told.err.splitlines()
        assert [line[:9] for line in lines] == ["perdure: ", "   safe: ", "     do: "]
        assert "was moved to" in lines[0]
        assert "--store" in lines[2]
    assert desk.place.perdure("inbox", "--json").json()["questions"] == []
    assert desk.place.perdure("answer", "asked", "yes").code == 5
    assert desk.place.perdure("cancel", "asked", "--yes").code == 5
    forked = desk.place.perdure("fork", "asked", "--at", "1", "--yes")
    assert forked.code == 5, forked
    (shown,) = [line for line in forked.err.splitlines() if line.startswith("     do: ")]
    assert shlex.split(shown.removeprefix("     do: "))[-1] == _location(desk.target)
    assert desk.place.lines("log.txt") == before
    assert desk.place.python("work.py", "report", "done").out == "sent done\n"


@to_a_file
def test_moved_there_and_back_everything_is_as_it_was(desk: Desk) -> None:
    desk.fill()
    before = desk.at(desk.source)
    assert desk.migrate().code == 0
    there = desk.at(desk.target)
    assert {run_id: whole.records for run_id, whole in there.items()} == {
        run_id: whole.records for run_id, whole in before.items()
    }
    assert desk.migrate(back=True).code == 0
    after = desk.at(desk.source)
    held = {run_id for run_id, whole in before.items() if whole.run.holder}
    assert {run_id: after[run_id] for run_id in before if run_id not in held} == {
        run_id: whole for run_id, whole in before.items() if run_id not in held
    }
    assert [after[run_id].records for run_id in held] == [before[run_id].records for run_id in held]
    assert [after[run_id].run.epoch - before[run_id].run.epoch for run_id in held] == [1] * len(held)


@pytest.mark.parametrize("desk", ["sqlite-postgres", "postgres-sqlite"], indirect=True)
@every(sampled=20, tortured=1)
def test_killed_at_every_statement_a_move_never_leaves_a_run_live_twice_or_nowhere(desk: Desk, stride: int) -> None:
    desk.fill()
    before = desk.at(desk.source)
    kills = tries = moments = 0
    with _mover(desk) as mover:
        ended = -signal.SIGKILL
        while ended == -signal.SIGKILL:
            tries += 1
            moments += 1 if tries == 1 else stride
            ended = mover(moments)
            kills += ended == -signal.SIGKILL
            here, there = (_rows(store) for store in (desk.source, desk.target))
            for run_id, whole in before.items():
                lives = _can_go_on(here.get(run_id)), _can_go_on(there.get(run_id))
                assert lives != (True, True), (run_id, moments)
                is_safe = any(lives) or run_id in there or whole.run.state in FINISHED
                assert is_safe, (run_id, moments)
    assert ended == 0
    print(f"\n{kills} of {tries - 1} kills landed")
    note("moves between stores", trials=1, landed={"kills": kills}, planned=tries - 1)
    assert kills == tries - 1
    assert kills * stride > 60
    after = desk.at(desk.target)
    assert {run_id: (whole.records, len(whole.mail)) for run_id, whole in after.items()} == {
        run_id: (whole.records, len(whole.mail)) for run_id, whole in before.items()
    }
    assert all(_can_go_on(after[run_id].run) is (whole.run.state not in FINISHED) for run_id, whole in before.items())
    assert desk.place.perdure("verify", "--store", desk.target).code == 0
    assert desk.place.perdure("verify", "--store", desk.source).code == 0


def _location(store: str) -> str:
    with contextlib.closing(open_store(store)) as opened:
        return opened.location


@contextlib.contextmanager
def _mover(desk: Desk) -> Iterator[Any]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faces.killed_move", desk.source, desk.target],
        env={**desk.place.environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def move(moments: int) -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{moments}\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("ended "):
                return int(line.split()[1])
        raise AssertionError("the mover is gone")

    try:
        yield move
    finally:
        process.communicate()


def _rows(store: str) -> dict[str, Run]:
    try:
        opened = open_store(store, create=False)
    except Exception:  # noqa: BLE001 - the target is made by the move, and may not be there yet
        return {}
    with contextlib.closing(opened):
        return {run.run_id: run for run in opened.find_runs(Which(), limit=EVERY)}


def test_run_of_a_live_process_is_left_named_and_moves_once_that_has_ended(place: Place) -> None:
    place.write("work.py", AGENTS + "\n    print('ready', flush=True)\n    time.sleep(60)\n")
    place.write(
        "held.py",
        """
    @perdure.agent
    def held() -> str:
        print("ready", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.01)
        return "done"

    if __name__ == "__main__":
        perdure.run(held, run_id="held")
    """,
    )
    process = place.start("held.py")
    told = place.perdure("migrate", "--from", str(place.database), "--to", "new.db")
    assert told.code == 5, told
    assert "is held by pid" in told.out
    assert "perdure drain --all" in told.out
    (place.folder / "go").touch()
    assert process.wait(60) == 0
    again = place.perdure("migrate", "--from", str(place.database), "--to", "new.db")
    assert again.code == 0, again


def test_dry_run_changes_nothing_and_makes_nothing(agent: Place) -> None:
    agent.python("work.py", "3", KILL="1")
    before = agent.database.read_bytes()
    told = agent.perdure("migrate", "--from", str(agent.database), "--to", "new.db", "--dry-run", "--json")
    assert told.code == 0, told
    counts = told.json()["moved"]
    assert (counts["done"], counts["moved"], counts["runs"]) == (False, 1, 1)
    assert counts["next"].startswith("perdure migrate --from ")
    assert not (agent.folder / "new.db").exists()
    assert agent.database.read_bytes() == before


def test_only_unfinished_runs_move_where_that_is_asked_for(agent: Place) -> None:
    agent.python("work.py", "1")
    agent.python("work.py", "3", KILL="1")
    told = agent.perdure("migrate", "--from", str(agent.database), "--to", "new.db", "--unfinished", "--json").json()
    assert (told["moved"]["moved"], told["moved"]["copied"]) == (1, 0)
    listed = agent.perdure("ls", "--all", "--json", "--store", "new.db").json()["runs"]
    assert len(listed) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--from", "a.db"], 2, "belong together"),
        (["--to", "a.db"], 2, "belong together"),
        (["--dry-run"], 2, "belong together"),
        (["--from", "nowhere.db", "--to", "b.db"], 6, "There is no store"),
        (["--from", "./.perdure/perdure.db", "--to", ".perdure/perdure.db"], 2, "are both"),
        (["--from", "./.perdure/perdure.db", "--to", "link/perdure.db"], 2, "are one store"),
        (["--from", "./.perdure/perdure.db", "--to", "memory:"], 2, "memory:"),
        (["--from", "./.perdure/perdure.db", "--to", "mysql://x/y"], 2, "no kind of store"),
        (["--from", "./.perdure/perdure.db", "--to", "postgresql://nobody@127.0.0.1:1/x"], 6, "cannot be reached"),
    ],
)
def test_unusable_stores_are_refused_in_three_lines_and_nothing_changes(
    agent: Place, words: list[str], code: int, said: str
) -> None:
    agent.python("work.py", "3", KILL="1")
    (agent.folder / "link").symlink_to(".perdure")
    told = agent.perdure("migrate", *words, PERDURE_OPEN_SECONDS="1")
    assert told.code == code, told
    assert said in told.err
    assert "   safe: " in told.err
    assert "     do: " in told.err
    assert agent.python("work.py", "3").code == 0


def test_undo_of_a_run_that_was_copied_is_done_where_it_is_now(place: Place) -> None:
    place.write(
        "work.py",
        """
    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    def take_back(undo: perdure.Intent) -> None:
        log("taken back")

    @perdure.effect(undo=take_back)
    def send() -> str:
        log("send")
        return "sent"

    @perdure.agent
    def work() -> str:
        return send()

    if __name__ == "__main__":
        perdure.run(work, run_id="sale")
    """,
    )
    place.python("work.py")
    assert place.perdure("migrate", "--from", str(place.database), "--to", "new.db").code == 0
    told = place.perdure("undo", "sale", "--app", "work.py", "--yes")
    assert told.code == 5, told
    assert "was moved to" in told.err
    assert place.perdure("undo", "sale", "--app", "work.py", "--yes", "--store", "new.db").code == 0
    assert place.lines("log.txt").count("taken back") == 1


def test_bar_moves_on_a_terminal_and_leaves_nothing_behind(agent: Place) -> None:
    agent.python("work.py", "3", KILL="1")
    arguments = ["-P", "-m", "perdure", "migrate", "--from", str(agent.database), "--to", "new.db"]
    process, terminal = on_terminal(agent, *arguments)
    shown = b""
    with contextlib.suppress(OSError):
        while more := os.read(terminal, 4096):
            shown += more
    assert process.wait(60) == 0
    os.close(terminal)
    assert "100%" in shown.decode()
    assert shown.decode().rindex("\x1b[2K") < shown.decode().index("Moved")


@pytest.fixture
def asking(place: Place) -> Place:
    """Two runs that wait, and one that has completed."""
    place.write("work.py", AGENTS)
    assert [place.python("work.py", "asks", name).code for name in ("first", "second")] == [3, 3]
    assert place.python("work.py", "report", "done").code == 0
    return place


def test_runs_that_were_moved_away_are_neither_parked_nor_unfinished_where_they_were(asking: Place) -> None:
    assert asking.perdure("ps", "--json").json()["total"] == 2
    assert asking.perdure("migrate", "--from", str(asking.database), "--to", "new.db").code == 0
    seen = asking.perdure("ps", "--json").json()
    assert (seen["total"], seen["runs"], seen["moved"]) == (0, [], 2)
    assert (seen["states"]["waiting"], seen["reasons"]["parked"], seen["states"]["completed"]) == (0, 0, 1)
    assert "1 completed, 2 moved away" in asking.perdure("ps").out
    everything = asking.perdure("ps", "--all", "--json").json()
    assert len(everything["runs"]) == everything["total"] == 3
    checks = asking.perdure("doctor", "--json").json()["checks"]
    (runs,) = [check for check in checks if check["about"] == "runs"]
    assert (runs["level"], "2 of them moved to another store" in runs["message"]) == ("ok", True)


def test_schedule_that_was_moved_away_is_not_switched_on_where_it_was(asking: Place) -> None:
    _schedule(str(asking.database), "work.report")
    assert asking.perdure("schedules", "--off", "report").code == 0
    assert asking.perdure("schedules", "--on", "report").code == 0
    assert asking.perdure("migrate", "--from", str(asking.database), "--to", "new.db").code == 0
    refused = asking.perdure("schedules", "--on", "report")
    assert refused.code == 2, refused
    assert "Schedule work.report was moved to" in refused.err
    assert (_schedules(asking, str(asking.database)), _schedules(asking, "new.db")) == (["off"], ["on"])
    assert asking.perdure("migrate", "--from", "new.db", "--to", str(asking.database)).code == 0
    assert (_schedules(asking, str(asking.database)), _schedules(asking, "new.db")) == (["on"], ["off"])
    assert asking.perdure("schedules", "--off", "report").code == 0
    assert asking.perdure("schedules", "--on", "report").code == 0


def _schedule(store: str, agent: str) -> None:
    with contextlib.closing(open_store(store)) as opened:
        row = Schedule(agent, agent, "0 3 * * *", "UTC", "last", "{}", next_at=4_000_000_000.0)
        assert opened.change_schedule(None, sealed_schedule(row))


def _schedules(place: Place, store: str) -> list[str]:
    return [each["state"] for each in place.perdure("schedules", "--json", "--store", store).json()["schedules"]]


def test_json_is_one_object(agent: Place) -> None:
    agent.python("work.py", "3", KILL="1")
    told = agent.perdure("migrate", "--from", str(agent.database), "--to", "new.db", "--json")
    assert json.loads(told.out)["moved"]["done"] is True
    assert told.err == ""

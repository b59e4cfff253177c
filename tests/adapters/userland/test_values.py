"""Time and chance of the user's modules: the same at every replay, of the library's own types, plain inside tools."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.userland.chance import Chance
from perdure.adapters.userland.values import Values, merged
from tests.adapters.userland.ground import executed, guarded, plain, written

WATCHER = Path(__file__).with_name("watcher.py")


def seen(script: Path, seed: str = "s", replayed: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """What the script printed as a literal of Python, and what it drew that is to be written."""
    shown = executed([str(WATCHER), str(script), seed, json.dumps(replayed or {})], folder=script.parent)
    assert shown.err == ""
    *printed, drawn = shown.out.splitlines()
    return [ast.literal_eval(line) for line in printed], json.loads(drawn)


CLOCKS = """
    import datetime as dt, time, uuid, warnings
    warnings.simplefilter("ignore")
    from datetime import date, datetime, timedelta, timezone
    from time import time as seconds, time_ns
    from zoneinfo import ZoneInfo
    oslo = timezone(timedelta(hours=1))
    readings = [
        datetime.now(), datetime.now(oslo), datetime.now(tz=ZoneInfo("Europe/Oslo")), dt.datetime.now(dt.UTC),
        datetime.utcnow(), datetime.today(), date.today(), dt.date.today(), datetime.now(None),
        time.time(), seconds(), time.time_ns(), time_ns(),
        time.localtime(), time.gmtime(), time.ctime(), time.asctime(), time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        uuid.uuid1(),
    ]
"""

CHANCES = """
    import os, random, secrets, uuid
    from random import Random, SystemRandom, choice, gauss as bell, randint
    from uuid import uuid4 as new_id
    cards = list(range(20))
    random.shuffle(cards)
    readings = [
        random.random(), random.uniform(1, 2), randint(1, 10**9), random.randrange(10**9), choice(range(10**9)),
        random.choices("abcdefgh", k=8), random.sample(range(1000), 4), bell(0, 1), random.getrandbits(64),
        random.randbytes(8), random.triangular(), random.betavariate(1, 2), random.expovariate(1.0),
        cards, uuid.uuid4(), new_id(), os.urandom(16), secrets.token_hex(8), secrets.token_bytes(8),
        secrets.token_urlsafe(8), secrets.randbelow(10**9), secrets.choice(range(10**9)), secrets.randbits(64),
        Random().random(), random.Random().getrandbits(64), SystemRandom().random(),
        random.SystemRandom().randint(1, 10**9), SystemRandom().sample(range(1000), 3),
    ]
"""

SHOWN = "print([repr(reading) for reading in readings])\nprint([type(reading).__name__ for reading in readings])\n"


def script_of(folder: Path, text: str, after: str = SHOWN) -> Path:
    script = written(folder, text)
    script.write_text(script.read_text() + after)
    return script


@pytest.mark.parametrize("text", [CLOCKS, CHANCES], ids=["time", "chance"])
def test_a_replay_gets_the_same_values_of_the_same_types(tmp_path: Path, text: str) -> None:
    script = script_of(tmp_path, text)
    (values, kinds), drawn = seen(script)
    assert seen(script, replayed=merged([drawn])) == ([values, kinds], {})
    assert kinds == ast.literal_eval(plain(script).out.splitlines()[1])


def test_times_are_the_present_ones(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        """
        import time
        from datetime import UTC, date, datetime
        monotonic = time.clock_gettime(time.CLOCK_REALTIME)
        near = lambda moment: abs(moment - monotonic) < 60
        print([near(time.time()), near(time.time_ns() / 1e9), near(datetime.now().timestamp()),
               near(datetime.now(UTC).timestamp()), near(datetime.today().timestamp()),
               near(time.mktime(time.localtime())), near(time.mktime(time.strptime(time.ctime()))),
               datetime.now().tzinfo, datetime.now(UTC).tzinfo is UTC, time.localtime(0)[0], time.gmtime(0)[0],
               time.strftime("%Y", time.gmtime(0)), time.ctime(0)[-4:]])
        """,
        "",
    )
    assert seen(script)[0] == [[True] * 7 + [None, True, 1970, 1970, "1970", "1970"]]


def test_a_reading_says_what_the_clocks_on_the_wall_showed_where_it_was_made(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        """
        import time
        from datetime import date, datetime
        print([str(datetime.now()), datetime.now().fold, str(date.today()), time.strftime("%H:%M %Z"), time.ctime()])
        """,
        "",
    )
    moment = ["local", [1761441300_123456000, 7200, 1, "CEST", 1]]
    assert seen(script, replayed={"main": [moment] * 5})[0] == [
        ["2025-10-26 03:15:00.123456", 1, "2025-10-26", "03:15 CEST", "Sun Oct 26 03:15:00 2025"]
    ]


def test_nothing_is_written_for_chance(tmp_path: Path) -> None:
    assert seen(script_of(tmp_path, CHANCES))[1] == {}


def test_another_seed_gives_other_chance(tmp_path: Path) -> None:
    script = script_of(tmp_path, CHANCES)
    (one, _), _ = seen(script, "one")
    (two, _), _ = seen(script, "two")
    assert all(a != b for a, b in zip(one, two, strict=True))
    assert len(set(one)) == len(one)


def test_a_seed_of_the_users_gives_what_it_gives_without_perdure(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        """
        import random
        random.seed(42)
        first = random.random(), random.gauss(0, 1)
        state = random.getstate()
        second = random.sample(range(100), 3)
        random.setstate(state)
        print([first, second, random.sample(range(100), 3), random.Random(7).random(), random.Random(x=7).random()])
        random.seed(a="text", version=2)
        print([random.random()])
        """,
        "",
    )
    assert seen(script)[0] == [ast.literal_eval(line) for line in plain(script).out.splitlines()]


def test_the_librarys_own_generator_is_left_alone(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        """
        import random, sys
        state = getattr(random, "getstate")()
        random.seed(1), random.random(), random.shuffle([1, 2, 3])
        print([getattr(random, "getstate")() == state])
        """,
        "",
    )
    assert seen(script)[0] == [[True]]


def test_inside_a_tool_the_library_is_called_and_nothing_is_recorded(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        """
        import random, time, uuid
        before = random.random()
        enter(Frame(None, Scope("main"), body="tool"))
        inside = random.random(), uuid.uuid4(), time.time()
        enter(Frame(None, Scope("main")))
        print([before, random.random(), str(inside)])
        """,
        "",
    )
    ((before, after, inside),), drawn = seen(script)
    ((before_again, after_again, inside_again),), _ = seen(script)
    assert (before, after) == (before_again, after_again)
    assert inside != inside_again
    assert drawn == {}


def test_every_strand_has_its_own_chance_and_readings(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        """
        import random, time, contextvars
        def draw(path):
            def work():
                enter(Frame(None, Scope(path)) if path else None)
                return random.random(), time.time_ns()
            return contextvars.copy_context().run(work)
        order = ["main/a#0", "main/b#0", "", "main/a#0"]
        print([(path, draw(path)) for path in order])
        """,
        "",
    )
    (given,), drawn = seen(script)
    assert set(drawn) == {"main/a#0", "main/b#0", "stray"}
    script.write_text(script.read_text().replace('["main/a#0", "main/b#0", "",', '["", "main/b#0", "main/a#0",'))
    (again,), new = seen(script, replayed=merged([drawn]))
    assert dict(given[1:3]) == dict(again[0:2])
    assert [each for each in given if each[0] == "main/a#0"] == again[2:]
    assert new == {}


def test_no_two_scopes_draw_the_same() -> None:
    chance = Chance(b"seed")
    scopes = ["main", "main/a#0", "main/a#1", "stray"]
    assert len({chance.generator(scope).random() for scope in scopes}) == len(scopes)
    assert len({chance.data(scope, 16) for scope in scopes}) == len(scopes)


def test_a_seed_set_above_decides_below_it() -> None:
    one, two = Chance(b"one"), Chance(b"two")
    for chance in (one, two):
        chance.reseed("main", (42,), {})
    assert one.generator("main").random() == two.generator("main").random()
    assert one.generator("main/a#0").random() == two.generator("main/a#0").random()
    assert one.generator("main/b#0").random() != two.generator("main/a#0").random()
    assert one.generator("stray").random() != two.generator("stray").random()
    assert one.data("main", 16) != two.data("main", 16)


def test_a_forked_process_draws_its_own(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        """
        import os, random, uuid
        def forked():
            r, w = os.pipe()
            if not os.fork():
                os.write(w, str((random.random(), uuid.uuid4())).encode())
                os._exit(0)
            os.wait()
            return os.read(r, 1000).decode()
        print([forked() != forked(), random.random()])
        """,
        "",
    )
    ((differ, own),), _ = seen(script)
    assert differ
    assert seen(script)[0][0][1] == own


def test_only_the_very_functions_of_the_library_are_stood_in_for(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        """
        import random, time, types
        from datetime import datetime
        class Moment(datetime):
            pass
        class Mine(random.Random):
            def random(self): return 0.5
        class Unhashable:
            __hash__ = None
            def __call__(self, *args): return args
            def __eq__(self, other): raise ValueError
        class Box:
            time = Unhashable()
            choice = types.MethodType(Unhashable(), 1)
            now = property(lambda self: [1])
        print([type(Moment.now()).__name__, Mine().random(), Mine(1).choice([3]), Box().time(), Box().choice(2)])
        print([Box().now, isinstance(random.Random(), random.Random), issubclass(Mine, random.Random)])
        print([random.Random is type(random.Random()), type(random.SystemRandom()) is random.SystemRandom])
        time.time = lambda: 7
        print([time.time(), time.monotonic() > 0, time.perf_counter() > 0, random.choice is random.choice])
        try: random.choice([])
        except IndexError as error: print([str(error)])
        try: datetime.now("x")
        except TypeError as error: print([str(error)])
        """,
        "",
    )
    shown, drawn = seen(script)
    assert shown == [ast.literal_eval(line) for line in plain(script).out.splitlines()]
    assert drawn == {}


def test_without_a_run_the_library_is_called(tmp_path: Path) -> None:
    script = script_of(tmp_path, CLOCKS + CHANCES.replace("readings = [", "readings += ["))
    one, two = guarded(script), guarded(script)
    assert (one.code, one.err) == (0, "")
    assert one.out != two.out
    assert one.out.splitlines()[1] == plain(script).out.splitlines()[1]


def test_functions_handed_on_stay_stood_in_for(tmp_path: Path) -> None:
    script = script_of(
        tmp_path,
        """
        import dataclasses, functools, inspect, random, uuid
        from pydantic import BaseModel, Field
        @dataclasses.dataclass
        class Note:
            id: uuid.UUID = dataclasses.field(default_factory=uuid.uuid4)
        class Model(BaseModel):
            id: uuid.UUID = Field(default_factory=uuid.uuid4)
        roll = functools.partial(random.randint, 1, 10**9)
        dice = {"roll": random.random}
        print([str(Note().id), str(Model().id), roll(), dice["roll"](), sorted("abc", key=lambda _: random.random())])
        print([str(inspect.signature(random.randint)), uuid.uuid4.__name__, random.choice.__doc__ is None])
        """,
        "",
    )
    assert seen(script) == seen(script)


def test_readings_are_handed_out_once_and_replayed_in_their_order() -> None:
    values = Values(b"seed")
    assert values.take_unwritten() == {}
    assert [values.drawn("main", "clock", iter([n]).__next__) for n in range(3)] == [0, 1, 2]
    values.drawn("main/a#0", "local", lambda: [9])
    first = values.take_unwritten()
    assert values.take_unwritten() == {}
    values.drawn("main", "clock", lambda: 3)
    written_down = json.loads(json.dumps([first, values.take_unwritten()]))

    again = Values(b"seed", merged(written_down))
    assert [again.drawn("main", "clock", lambda: -1) for _ in range(5)] == [0, 1, 2, 3, -1]
    assert again.drawn("main/a#0", "local", lambda: -1) == [9]
    assert again.take_unwritten() == {"main": (4, [("clock", -1)])}


def test_a_reading_of_another_kind_ends_the_replay_of_its_scope() -> None:
    recorded = {"main": [["clock", 1], ["clock", 2], ["clock", 3]], "other": [["clock", 4]]}
    values = Values(b"seed", recorded)
    assert values.drawn("main", "clock", lambda: -1) == 1
    assert values.drawn("main", "local", lambda: [-2]) == [-2]
    assert values.drawn("main", "clock", lambda: -3) == -3
    assert values.drawn("other", "clock", lambda: -1) == 4
    drawn = values.take_unwritten()
    assert merged([{"main": (0, recorded["main"])}, drawn])["main"] == [["clock", 1], ("local", [-2]), ("clock", -3)]


def test_bytes_do_not_depend_on_how_many_are_taken_at_once() -> None:
    one, two = Chance(b"seed"), Chance(b"seed")
    assert b"".join(one.data("main", size) for size in (1, 0, 31, 32, 33, 100)) == two.data("main", 197)

"""Machines whose clocks are an hour apart: leases, sleeps, deadlines and doubts go by the time of the store."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import clock
from tests.faces.conftest import Place
from tests.postgres import schema_url
from tests.worker.conftest import Crew

COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(not COMPILER, reason="moving the clock of a process needs a C compiler")

SHIFT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) { const char *by = getenv("SHIFT_SECONDS"); return by ? atol(by) : 0; }

int clock_gettime(clockid_t which, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int outcome = real(which, at);
    if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) at->tv_sec += shift();
    return outcome;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
"""
"""The wall clock of a process, moved; what measures elapsed time is left alone, as on a machine set wrongly."""

PAUSE_SECONDS = 3.0
BODIES = f"""
    @perdure.effect(in_flight_seconds={PAUSE_SECONDS})
    def post(name: str) -> str:
        log(f"post {{name}}")
        if not os.path.exists(f"{{name}}.go"):
            time.sleep(600)
        return name

    @post.check
    def was_posted(intent):
        log(f"check {{intent.arguments['name']}}")
        return perdure.did_not_happen()

    @perdure.agent
    def sleeper(name: str) -> str:
        work(name, 0)
        perdure.sleep({PAUSE_SECONDS})
        work(name, 1)
        return name

    @perdure.agent
    def poster(name: str) -> str:
        return post(name)

    @perdure.agent
    def asker(name: str) -> str:
        perdure.ask("Well?", timeout={PAUSE_SECONDS}, default="late")
        work(name, 1)
        return name

    @perdure.agent(deadline=3600)
    def patient(name: str) -> str:
        stay(name)
        work(name, 1)
        return name
"""


class Machines(Crew):
    """A crew of which each process may be on a machine of its own."""

    def __init__(self, place: Place, library: Path) -> None:
        super().__init__(place, more=BODIES)
        self._library = library

    @contextlib.contextmanager
    def shifted(self, ahead: str) -> Iterator[None]:
        """Processes that are started meanwhile are on a machine whose clock is wrong."""
        wrong = {"LD_PRELOAD": os.fspath(self._library), "SHIFT_SECONDS": ahead}
        self.place.environment |= wrong
        try:
            yield
        finally:
            for name in wrong:
                del self.place.environment[name]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shift")
    (folder / "shift.c").write_text(SHIFT)
    made = folder / "shift.so"
    subprocess.run([COMPILER or "cc", "-shared", "-fPIC", "-o", made, folder / "shift.c", "-ldl"], check=True)
    return made


@pytest.fixture
def crew(library: Path, tmp_path: Path) -> Iterator[Machines]:
    with schema_url() as url:
        place = Place(tmp_path)
        place.environment |= {"PERDURE_STORE": url, "PERDURE_RENEW_SECONDS": "0.5", "PERDURE_LEASE_SECONDS": "3"}
        place.environment["PERDURE_STALL_SECONDS"] = "3"
        made = Machines(place, library)
        yield made
        made.end()


def worker(crew: Machines, ahead: str) -> subprocess.Popen[str]:
    with crew.shifted(ahead):
        return crew.worker()


def moment(crew: Machines, line: str) -> float:
    """When this line was seen, by a clock that nobody moved."""
    crew.until(lambda: line in crew.log())
    return clock.elapsed_seconds()


SKEWS = [("3600", "-3600"), pytest.param("-3600", "3600", marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize(("first", "second"), SKEWS)
def test_sleep_that_begins_on_one_machine_ends_in_time_on_another(crew: Machines, first: str, second: str) -> None:
    with crew.shifted(second):
        run = crew.start("sleeper", name="a")
    begun = worker(crew, first)
    asleep = moment(crew, "end a 0")
    crew.until(lambda: crew.states()[run][0] == "waiting")
    crew.kill(begun)
    worker(crew, second)
    awake = moment(crew, "begin a 1")
    assert awake - asleep > PAUSE_SECONDS - 0.5
    crew.until(lambda: run in crew.ended())
    assert crew.log().count("end a 0") == 1


@pytest.mark.parametrize(("first", "second"), SKEWS)
def test_living_worker_is_not_robbed_and_a_dead_one_is(crew: Machines, first: str, second: str) -> None:
    run = crew.start("patient", name="a")
    holder = worker(crew, first)
    crew.until(lambda: "holding a" in crew.log())
    worker(crew, second)
    other = crew.start("job", name="b", steps=1)
    crew.until(lambda: other in crew.ended())
    seen = clock.elapsed_seconds()
    crew.until(lambda: clock.elapsed_seconds() > seen + 4)
    assert crew.log().count("holding a") == 1
    crew.kill(holder)
    crew.until(lambda: crew.log().count("holding a") == 2)
    crew.let_go("a")
    crew.until(lambda: run in crew.ended())


@pytest.mark.parametrize(("first", "second"), SKEWS)
def test_effect_in_doubt_is_not_performed_again_before_it_cannot_land_any_more(
    crew: Machines, first: str, second: str
) -> None:
    run = crew.start("poster", name="a")
    sender = worker(crew, first)
    sent = moment(crew, "post a")
    crew.kill(sender)
    crew.let_go("a")
    worker(crew, second)
    crew.until(lambda: crew.log().count("post a") == 2)
    assert clock.elapsed_seconds() - sent > PAUSE_SECONDS - 0.5
    crew.until(lambda: run in crew.ended())
    assert crew.log().count("check a") >= 1


@pytest.mark.parametrize(("first", "second"), SKEWS)
def test_question_is_open_for_as_long_as_was_said(crew: Machines, first: str, second: str) -> None:
    run = crew.start("asker", name="a")
    asking = worker(crew, first)
    crew.until(lambda: crew.states()[run] == ("waiting", "human"))
    asked = clock.elapsed_seconds()
    crew.kill(asking)
    with crew.shifted(second):
        assert crew.place.perdure("inbox").code == 0
    worker(crew, second)
    late = moment(crew, "end a 1")
    assert late - asked > PAUSE_SECONDS - 2
    crew.until(lambda: run in crew.ended())


def test_doctor_names_a_clock_that_is_wrong(crew: Machines) -> None:
    crew.start("sleeper", name="a")
    with crew.shifted("3600"):
        result = crew.place.perdure("doctor")
    assert result.code == 0, result
    assert "ahead of the server's" in result.out

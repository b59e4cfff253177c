"""The PostgreSQL server of the store is killed with -9 at every point, and started again: nothing acknowledged is lost.

The server is one that runs on this machine, that nobody else is connected to, and that was named with `--yes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import UsageError
from perdure.testing.crash.grounds import UNSTARTED, judge_acknowledged, names_the_store, refuse_plain_scripts
from perdure.testing.crash.modes import Plan, chosen_points
from perdure.testing.crash.points import REQUEST_WINDOWS

if TYPE_CHECKING:
    from perdure.testing.crash.evidence import Evidence
    from perdure.testing.crash.nursery import Life
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.server import Server
    from perdure.testing.crash.trial import Reference, Trial

NAME = "kill-database"
SUMMARY = "kill the local PostgreSQL server of --store at every point"


def at_once(jobs: int) -> int:
    """There is one server, however many jobs there are."""
    return min(jobs, 1)


def refuse(options: Options) -> None:
    """Only a local server that somebody gave up for this, and that nobody else uses, is killed."""
    if not options.store:
        raise UsageError(
            "--kill-database kills the server of the store, and this store is a file.",
            safe=UNSTARTED,
            hint="name a local server that nobody else needs: --store postgresql://USER@localhost/DATABASE",
        )
    server = _server(options)
    if not options.sure:
        raise UsageError(
            f"--kill-database kills the PostgreSQL server in {server.postmaster.folder}"
            f" (process {server.postmaster.pid}) again and again; everything on it is interrupted.",
            safe="the server was not touched.",
            hint="if nobody needs it meanwhile, say so: --yes",
        )
    server.refuse_strangers()


def plan(reference: Reference, options: Options) -> list[Plan]:
    """One trial a point."""
    refuse_plain_scripts(reference, NAME)
    points = [point for point in chosen_points(reference, options) if point.window not in REQUEST_WINDOWS]
    return [Plan(NAME, (point,), words=("--kill-database", "--yes")) for point in points]


def play(trial: Trial, plan: Plan) -> None:
    """Stop the agent at the point, kill the server, let both go on, and judge."""
    point = plan.points[0]
    server = _server(trial.options)
    trial.tally.planned += 1
    life = trial.reach(point, traced=True)
    if life.is_over():
        return
    standing = trial.evidence()
    try:
        server.refuse_strangers(besides="perdure")  # which is what our own process is called there
        server.kill()
        life.thaw()
    finally:
        killed = server.postmaster.pid
        server.start_again()
    trial.tally.landed += server.postmaster.pid != killed
    trial.tally.in_effect += point.is_in_effect
    _judge_survivor(trial, life, standing)
    trial.judge_reruns(trial.before)
    trial.judge(trial.resume_to_the_end())


def _judge_survivor(trial: Trial, life: Life, standing: Evidence) -> None:
    """The agent's own process goes on once the server is back, or says clearly why it does not."""
    ended = life.wait()
    if ended.is_late:
        trial.fault("hung", "the process did not go on after its server came back")
    elif trial.is_done(ended):
        trial.tally.count("went on by itself")
    elif not names_the_store(trial, ended) and not trial.attend().helped:
        trial.fault("unclear", f"it did not say that its server was away: {trial.ending(ended)}")
    judge_acknowledged(trial, life.name, standing)


def _server(options: Options) -> Server:
    from perdure.testing.crash.server import Server  # it needs psycopg

    return Server(options.store)

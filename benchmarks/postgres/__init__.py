"""What a step, a start, a takeover and a claim cost on PostgreSQL: `python -m benchmarks --only postgres`.

`steps` is one run and a hundred at once, `starts` a queue, `takeover` the death of a worker, `claims` a store with a
million runs. All is measured on one server in one go, beside bare psycopg, Absurd and DBOS on the same server, which
`server` serves and whose counts it reads. Everybody commits with `fsync` and `synchronous_commit` on; a server where
they are off is refused. `BENCHMARK_POSTGRES` names another server than the one that is started here.
"""

from __future__ import annotations

from benchmarks.laboratory import Laboratory, TrialFailed, say
from benchmarks.postgres import claims, starts, steps, takeover
from benchmarks.postgres.server import MUST_BE_ON, ServerLaboratory, served
from benchmarks.report import Row

PARTS = {"steps": steps, "starts": starts, "takeover": takeover, "claims": claims}


def measure(laboratory: Laboratory, part: str = "") -> list[Row]:
    """Measure one part, or all of them."""
    with served(laboratory.directory) as url:
        on_server = ServerLaboratory(laboratory.directory, quick=laboratory.quick, url=url)
        settings = on_server.settings()
        say(", ".join(f"{name} {value}" for name, value in settings.items()))
        if any(settings[name] != "on" for name in MUST_BE_ON):
            raise TrialFailed(f"{', '.join(MUST_BE_ON)} must be on")
        wanted = [PARTS[part]] if part else PARTS.values()
        return [row for each in wanted for row in each.measure(on_server)]

"""`python -m tests.simulation`: one seed again, line by line, or a campaign of many."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.campaign import played, replay_command, report, wide_campaign
from tests.simulation.play import Ending


def main() -> int:
    """What was asked for; 0 where every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one simulation")
    parser.add_argument("--trace", action="store_true", help="show every point it came by")
    parser.add_argument("--all", action="store_true", help="with --trace: those at which workers only look, too")
    parser.add_argument("--seeds", type=int, default=1000, help="how many simulations a campaign has")
    parser.add_argument("--first", type=int, default=0, help="the first seed of a campaign")
    parser.add_argument("--jobs", type=int, default=0, help="over so many processes; all cores where none is named")
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory")
    parser.add_argument("--bug", default="", help="plant tests/planted/NAME.py first")
    asked = parser.parse_args()
    if asked.seed is not None:
        return _show(played(asked.seed, store=asked.store, bug=asked.bug), asked)
    seeds = range(asked.first, asked.first + asked.seeds)
    summary = wide_campaign(seeds, store=asked.store, bug=asked.bug, jobs=asked.jobs)
    print(report(summary, store=asked.store, bug=asked.bug))
    return 0 if summary.is_good else 1


_LOOKS = frozenset({"list_ready", "wake_due", "read_worker", "list_schedules", "list_queues", "beat", "now"})


def _show(ending: Ending, asked: argparse.Namespace) -> int:
    for seconds, who, point, about, fate in ending.trace if asked.trace else ():
        if asked.all or fate or point not in _LOOKS:
            print(f"{seconds:9.3f}  {who:<22} {point:<20} {about:<40} {fate}".rstrip())
    counts = ", ".join(f"{count} {name}" for name, count in sorted(ending.counts.items()))
    print(f"seed {ending.seed}: {counts}")
    print(f"broken: {ending.fault}" if ending.fault else "every promise was kept")
    if ending.fault and not asked.trace:
        print(f"  {replay_command(ending.seed, store=asked.store, bug=asked.bug)}")
    return 1 if ending.fault else 0


if __name__ == "__main__":
    sys.exit(main())

"""What the tests of the commands that move runs share: looking at runs, and an agent whose effects are counted."""

from __future__ import annotations

from typing import Any


def runs_of(place: Any) -> list[dict[str, Any]]:
    """All runs, newest first, as `perdure ls --json` gives them."""
    listed: list[dict[str, Any]] = place.perdure("ls", "--json").json()["runs"]
    return listed


def name_of(place: Any) -> str:
    """The newest run's name."""
    return str(runs_of(place)[0]["name"])


SLOW = """
    @perdure.step
    def first() -> int:
        return 1

    @perdure.step
    def wait() -> int:
        print("ready", flush=True)
        while not os.path.exists("quick"):
            time.sleep(0.01)
        return 2

    @perdure.agent
    def work() -> int:
        return first() + wait()

    if __name__ == "__main__":
        perdure.run(work)
"""
"""Waits in its second step until there is a file `quick`."""

GATED = """
    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    @perdure.effect(in_flight_seconds=0)
    def send(number: int, to: int) -> str:
        log(f"send {number} {to}")
        return f"sent {to}"

    @send.check
    def was_sent(intent: perdure.Intent) -> perdure.Verdict:
        call = f"send {intent.arguments['number']} {intent.arguments['to']}"
        lines = open("log.txt").read().splitlines() if os.path.exists("log.txt") else []
        return perdure.happened("sent") if call in lines else perdure.did_not_happen()

    @perdure.step
    def gate(number: int) -> int:
        print(f"at the gate {number}", flush=True)
        while not os.path.exists("open"):
            time.sleep(0.01)
        return number

    @perdure.agent
    def deliver(number: int) -> str:
        send(number, 1)
        send(number, 2)
        gate(number)
        return send(number, 3)
"""
"""Sends two mails, waits at a gate until there is a file `open`, and sends a third; log.txt counts them."""

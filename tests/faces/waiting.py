"""Agents that wait, for the tests of the commands that end waits."""

from __future__ import annotations

ASKING = """
    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    @perdure.step
    def research(customer: str) -> str:
        log("research")
        return f"facts about {customer}"

    @perdure.effect
    def send(to: str) -> str:
        log(f"send {to}")
        return f"sent to {to}"

    @perdure.agent
    def choose(customer: str) -> str:
        facts = research(customer)
        answer = perdure.ask(
            "Send this?", options=["send", "discard"], show={"facts": facts}, assignee="lead", timeout="8h"
        )
        return send(customer) if answer.choice == "send" else f"discarded by {answer.by}"

    @perdure.agent
    def describe(customer: str) -> str:
        return perdure.ask("What is their name?").value

    FORM = {
        "type": "object",
        "properties": {
            "cents": {"type": "integer", "minimum": 1},
            "why": {"type": "string", "description": "for the books"},
        },
        "required": ["cents"],
        "additionalProperties": False,
    }

    @perdure.agent
    def refund(customer: str) -> str:
        return f"refund {perdure.ask('How much?', form=FORM).value['cents']}"

    @perdure.agent
    async def both(customer: str) -> str:
        import asyncio

        async def one() -> str:
            return (await perdure.ask("First colour?")).value

        async def two() -> str:
            return (await perdure.ask("Second colour?")).value

        return "+".join(await asyncio.gather(one(), two()))

    @perdure.agent
    def parent(customer: str) -> str:
        return "parent: " + perdure.start(choose, customer).result()

    @perdure.agent(tags={"team": "billing"})
    def listen(customer: str) -> str:
        perdure.progress(2, 5, "listening")
        return f"heard {perdure.wait_for('go')}"

    @perdure.agent
    def late(customer: str) -> str:
        return perdure.ask("Too late?", timeout=0.05, options=["yes", "no"], default="no").choice

    if __name__ == "__main__":
        print("result:", perdure.run(globals()[sys.argv[1]], "ada"))
"""

LEFT = """
import os, sys
import perdure, work

def leave(event):
    if event.reason == sys.argv[3]:
        os._exit(0)

perdure.subscribe(leave, getattr(perdure.events, sys.argv[2]))
perdure.run(getattr(work, sys.argv[1]), "ada")
"""
"""A process that runs an agent and is gone as soon as this event comes, for this reason."""

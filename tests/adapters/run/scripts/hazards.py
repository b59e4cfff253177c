"""Small scripts, one for each thing that is known to go wrong when scripts are replayed; the first argument names it."""

import asyncio
import datetime
import json
import os
import sys

import openai

from errand import act

client = openai.OpenAI()


def ask(*messages: dict, tools: tuple[str, ...] = (), **options: object) -> dict:
    known = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in tools]
    given = {"tools": known} if tools else {}
    answer = client.chat.completions.create(model="gpt-5", messages=list(messages), **given, **options)
    return answer.choices[0].message.model_dump(exclude_none=True)


def said(text: str) -> dict:
    return {"role": "user", "content": text}


def loop(prompt: str, functions: dict) -> str:
    messages = [said(prompt)]
    while True:
        messages.append(ask(*messages, tools=tuple(functions)))
        if not messages[-1].get("tool_calls"):
            return messages[-1]["content"]
        for call in messages[-1]["tool_calls"]:
            found = functions[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(found)})


def dates() -> None:
    """Prompts that differ only in a date."""
    for day in ("2026-01-01", "2026-01-02"):
        print(ask(said(f"What happened on {day}?"))["content"])
    print(ask(said(f"What happened today, {datetime.datetime.now().isoformat()}?"))["content"])


def concurrent() -> None:
    """Identical prompts at once, in threads of the script's own."""

    async def one(http: openai.AsyncOpenAI) -> str:
        answer = await http.chat.completions.create(model="gpt-5", messages=[said("Say something.")])
        return answer.choices[0].message.content

    async def both() -> list[str]:
        async with openai.AsyncOpenAI() as http:
            return await asyncio.gather(one(http), one(http), one(http))

    print(*asyncio.run(both()))


NOTES: list[str] = []
COUNTS = {"calls": 0}
PAGES: list[str] = []
OPEN: list[str] = []
DESK = {"inner": {"pages": PAGES, "count": 0}, "open": OPEN}
total = 0


class Ledger:
    def __init__(self) -> None:
        self.entries: dict[str, int] = {}

    def note(self, what: str) -> str:
        self.entries[what] = len(self.entries)
        return act("note", what)


def memory() -> None:
    """Tools that change globals, what they close over, and the object that they belong to."""
    seen: list[str] = []
    ledger = Ledger()

    def look(what: str) -> str:
        global total
        total += 1
        NOTES.append(what)
        COUNTS["calls"] += 1
        seen.append(what)
        return act("look", what)

    text = loop("Do it.", {"look": look, "note": ledger.note})
    print(text, NOTES, COUNTS, total, seen, ledger.entries)


def shared() -> None:
    """Tools that reach one object by two names."""

    def look(what: str) -> str:
        PAGES.append(what)
        DESK["inner"]["count"] += 1
        return act("look", what)

    def note(what: str) -> str:
        DESK["inner"]["pages"].append(what)
        DESK["open"].append(what)
        OPEN.append(what)
        return act("note", what)

    print(loop("Do it.", {"look": look, "note": note}), DESK, PAGES, OPEN)


def unstorable() -> None:
    """A tool that changes what nobody can store."""
    handles: list[object] = []

    def look(what: str) -> str:
        handles.append(open(os.devnull))  # noqa: SIM115
        return act("look", what)

    print(loop("Do it.", {"look": look}))


def same_names() -> None:
    """Two tools of one name, of two objects."""

    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        def order(self, what: str) -> str:
            return act("order", f"{self.name}:{what}")

    one, other = Shop("one"), Shop("other")
    print(loop("Of one.", {"order": one.order}), loop("Of the other.", {"order": other.order}))


def nested() -> None:
    """A tool that is called by a tool is recorded once, as part of it."""

    def send(to: str) -> str:
        return act("send", to)

    def send_all(to: str) -> str:
        return send(to)

    print(loop("Do it.", {"send_all": send_all, "send": send}))


def telemetry() -> None:
    """Other requests on the same client take nothing from the model calls."""
    http = client._client  # noqa: SLF001
    base = str(client.base_url)
    print(ask(said("One."))["content"], http.get(f"{base}models").status_code)
    http.post(f"{base}traces/ingest", json={"spans": [1]})
    print(ask(said("Two."))["content"])


def cut() -> None:
    """A stream that breaks off is no answer: it is asked for again."""
    for _ in range(3):
        try:
            pieces = client.chat.completions.create(model="gpt-5", messages=[said("Go on.")], stream=True)
            print("".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices))
            break
        except openai.APIError as error:
            print("again:", type(error).__name__)


{each.__name__: each for each in (dates, concurrent, memory, shared, unstorable, same_names, nested, telemetry, cut)}[
    sys.argv[1]
]()

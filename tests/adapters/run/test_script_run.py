"""What `perdure run` makes of a script: one run of it, resumed by the same command, parked when it only dies."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

import pytest

from perdure.testing.model_server import ModelServer

AGENT = """
import json, os, pathlib, signal, sys, urllib.parse
import httpx

def note(line):
    with open("log.txt", "a") as file:
        file.write(line + "\\n")

def die_once(name):
    mark = pathlib.Path(name)
    if mark.exists():
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

def lookup(city: str, days: int = 1) -> dict:
    note(f"lookup {city} {days}")
    return {"city": city, "days": days}

def pay(cents: int) -> str:
    note(f"pay {cents}")
    die_once("die in pay")
    return f"paid {cents}"

TOOLS = {"lookup": lookup, "pay": pay}

def ask(messages):
    body = {"model": "gpt-5", "messages": messages}
    answer = httpx.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=body,
                        headers={"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}, timeout=60)
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]

messages = [{"role": "user", "content": " ".join(sys.argv[1:])}]
while (said := ask(messages)).get("tool_calls"):
    messages.append(said)
    for call in said["tool_calls"]:
        die_once("die before " + call["function"]["name"])
        found = TOOLS[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(found)})
die_once("die at the end")
print("said:", said["content"])
"""


def scripted(server: ModelServer) -> None:
    server.calls("lookup", city="Oslo").calls("pay", cents=900).says("Done.")


def test_killed_it_goes_on_by_itself_and_nothing_is_asked_or_done_twice(place: Any, server: ModelServer) -> None:
    scripted(server)
    place.write(AGENT)
    for mark in ("die before lookup", "die before pay", "die at the end"):
        place.touch(mark)
    ended = place.run("agent.py", "book", "it")
    assert (ended.code, ended.out) == (0, "said: Done.\n"), ended
    assert len(server.requests) == 3
    assert place.lines() == ["lookup Oslo 1", "pay 900"]
    assert sum("was killed by signal 9 (SIGKILL)" in line for line in ended.told) == 3


def test_the_same_command_resumes_and_another_is_another_run(place: Any, server: ModelServer) -> None:
    scripted(server)
    place.write(AGENT)
    place.touch("die before pay")
    ended = place.run("--no-resume", "agent.py", "book")
    assert ended.code == -9
    assert "has 3 steps saved. The same command resumes it." in ended.err
    refused = place.run("--no-resume", "agent.py", "book")
    assert refused.code == 2
    assert "of the same call is unfinished" in refused.err
    assert place.run("agent.py", "other").code == 0
    assert (len(server.requests), place.lines()) == (5, ["lookup Oslo 1", "lookup Oslo 1", "pay 900"])
    ended = place.run("agent.py", "book")
    assert (ended.code, ended.out) == (0, "said: Done.\n")
    assert (len(server.requests), place.lines()[3:]) == (6, ["pay 900"])
    place.run("agent.py", "book")
    assert len(server.requests) == 9, "a completed run is over: the same command is a new one"


@pytest.mark.parametrize("leaves", ["atexit.register(leave)", "threading.Thread(target=leave).start()"])
def test_a_run_is_over_when_what_the_script_left_for_its_exit_is_done(
    place: Any, server: ModelServer, leaves: str
) -> None:
    scripted(server)
    leave = 'def leave():\n    print("leaving", flush=True)\n    die_once("die at exit")'
    place.write(f"{AGENT}\nimport atexit, threading\n{leave}\n{leaves}\n")
    place.touch("die at exit")
    ended = place.run("--no-resume", "agent.py", "book")
    assert (ended.code, ended.out) == (-9, "said: Done.\nleaving\n"), ended
    assert "has 5 steps saved. The same command resumes it." in ended.err
    ended = place.run("agent.py", "book")
    assert (ended.code, ended.out) == (0, "said: Done.\nleaving\n"), ended
    assert (len(server.requests), place.lines()) == (3, ["lookup Oslo 1", "pay 900"])


def test_fresh_starts_over_and_an_id_is_one_run(place: Any, server: ModelServer) -> None:
    scripted(server)
    place.write(AGENT)
    place.touch("die before pay")
    assert place.run("--no-resume", "agent.py", "book").code == -9
    assert place.run("--fresh", "agent.py", "book").code == 0
    assert len(server.requests) == 5
    for _ in range(2):
        ended = place.run("--id", "order-17", "--tag", "who=ada", "agent.py", "book")
        assert ended.code == 0, ended
    assert len(server.requests) == 8
    shown = json.loads(place.perdure("show", "order-17", "--json").out)
    assert shown["run"]["agent"] == "agent.py"
    assert shown["run"]["tags"] == {"who": "ada"}


def test_a_tool_that_was_interrupted_is_in_doubt_until_somebody_says_what_happened(
    place: Any, server: ModelServer
) -> None:
    scripted(server)
    place.write(AGENT)
    place.touch("die in pay")
    ended = place.run("agent.py", "book")
    assert ended.code == 4, ended
    assert "pay(cents=900) was started and never confirmed" in ended.err
    name = json.loads(place.perdure("ls", "--json").out)["runs"][0]["name"]
    settled = place.perdure("settle", name, "pay", "--happened", '"paid 900"')
    assert settled.code == 0
    assert "performed again; what it changed in memory is not known, and is not put back\n" in settled.out
    ended = place.run("agent.py", "book")
    assert (ended.code, ended.out) == (0, "said: Done.\n"), ended
    assert place.lines() == ["lookup Oslo 1", "pay 900"]
    assert server.requests[-1].body["messages"][-1]["content"] == '"paid 900"'


def test_a_script_that_only_dies_is_parked_after_three_deliveries_with_the_cause(
    place: Any, server: ModelServer
) -> None:
    server.says("Done.")
    place.write("import os, httpx\nos.kill(os.getpid(), 9)\n")
    ended = place.run("agent.py")
    assert ended.code == 5, ended
    assert sum("goes on in" in line for line in ended.told) == 3
    assert "killed by signal 9 (SIGKILL)" in "".join(ended.told[-3:])


def test_the_command_that_a_parked_script_advises_goes_on_with_it(bare: Any) -> None:
    bare.write(
        "import os, sys\nif not os.path.exists('mended'):\n    os.kill(os.getpid(), 9)\nprint(sys.argv[1:])", "in/a.py"
    )
    ended = bare.run("in/a.py", "two words", PERDURE_DELIVERIES="1")
    assert ended.code == 5, ended
    advised = ended.told[-1].partition("with the cause mended: perdure ")[2].split()
    assert advised[0] == "resume"
    assert advised[2:] == ["--app", "in/a.py"]
    bare.touch("mended")
    refused = bare.perdure(*advised[:2])
    assert refused.code == 2
    assert ".." not in refused.told[0]
    assert refused.told[-1].endswith(f"perdure {' '.join(advised)}")
    ended = bare.perdure(*advised)
    assert (ended.code, ended.out) == (0, "['two words']\n"), ended
    assert json.loads(bare.perdure("show", advised[1], "--json").out)["run"]["state"] == "completed"


def test_what_a_tool_raised_is_its_outcome_and_the_tool_is_not_performed_again(place: Any, server: ModelServer) -> None:
    scripted(server)
    place.write(AGENT.replace('return f"paid {cents}"', "open('till.txt').read(); return 'paid'"))
    ended = place.run("agent.py", "book")
    assert ended.code == 1
    assert ended.own.startswith("Traceback (most recent call last):\n")
    assert "No such file or directory: 'till.txt'" in ended.own
    place.touch("till.txt")
    ended = place.run("agent.py", "book")
    assert ended.code == 1, ended
    assert place.lines() == ["lookup Oslo 1", "pay 900"]


def test_a_request_that_differs_is_never_given_the_answer_of_another(place: Any, server: ModelServer) -> None:
    scripted(server)
    place.write(AGENT)
    place.touch("die before pay")
    place.run("--no-resume", "agent.py", "book")
    place.write(AGENT.replace('"content": " ".join(sys.argv[1:])', '"content": "Today is the 2nd: book"'))
    ended = place.run("agent.py", "book")
    assert ended.code == 5, ended
    assert "no longer matches its code" in ended.err
    assert "Today is the 2nd" in ended.err
    assert "or start over: add --fresh" in ended.err
    assert "perdure.patched" not in ended.err
    assert len(server.requests) == 2


def test_no_key_of_the_user_is_stored_or_shown(place: Any, server: ModelServer) -> None:
    scripted(server)
    canary = "canary-8d1f0c77b2e94"
    place.write(AGENT.replace('" ".join(sys.argv[1:])', '"my key is " + os.environ["OPENAI_API_KEY"]'))
    place.touch("die before pay")
    ended = place.run("agent.py", "book", OPENAI_API_KEY=canary)
    assert (ended.code, ended.out) == (0, "said: Done.\n"), ended
    assert canary in server.requests[0].body["messages"][0]["content"]
    exported = place.perdure("export", "--all", "-o", "exported")
    assert exported.code == 0
    assert list((place.folder / "exported").iterdir())
    for file in place.folder.rglob("*"):
        assert not file.is_file() or canary.encode() not in file.read_bytes(), file
    for text in (ended.err, ended.out, exported.out, exported.err, place.perdure("show", "--json").out):
        assert canary not in text


HASHED = """
import os, sys, httpx
if sys.argv[1] == "environment":
    print(os.environ.get("PYTHONHASHSEED"), sys.flags.hash_randomization)
said = ", ".join({f"item {number}" for number in range(20)}) + str(hash("abc"))
body = {"model": "gpt-5", "messages": [{"role": "user", "content": said}]}
httpx.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=body, timeout=60).raise_for_status()
if os.path.exists("die"):
    os.unlink("die")
    os.kill(os.getpid(), 9)
print("end")
"""


def test_the_same_command_puts_what_is_hashed_in_the_same_order(place: Any, server: ModelServer) -> None:
    server.says("One.").says("Two.")
    place.environment.pop("PYTHONHASHSEED", None)
    place.write(HASHED)
    place.touch("die")
    assert place.run("--no-resume", "agent.py", "x").code == -9
    ended = place.run("./agent.py", "x")
    assert (ended.code, ended.out) == (0, "end\n"), ended
    assert len(server.requests) == 1


@pytest.mark.parametrize("variables", [{}, {"PYTHONHASHSEED": "7"}, {"PYTHONHASHSEED": "random"}])
def test_a_script_sees_the_hash_seed_that_its_user_set_and_no_other(
    place: Any, server: ModelServer, variables: dict[str, str]
) -> None:
    server.says("One.").says("Two.")
    place.environment.pop("PYTHONHASHSEED", None)
    place.write(HASHED)
    alone, run = (start("agent.py", "environment", **variables) for start in (place.plain, place.run))
    assert (run.code, run.out) == (0, alone.out), run
    same = server.requests[0].body == server.requests[1].body
    assert same is (variables.get("PYTHONHASHSEED") == "7"), "a seed of the user's is the one that is used"


def test_tokens_and_dollars_of_each_call_are_counted(place: Any, server: ModelServer) -> None:
    scripted(server)
    place.write(AGENT)
    assert place.run("agent.py", "book").code == 0
    with sqlite3.connect(place.folder / ".perdure" / "perdure.db") as database:
        ((tokens, dollars),) = database.execute("SELECT tokens, dollars FROM runs").fetchall()
    assert tokens > 0
    assert dollars > 0


def test_what_is_not_protected_is_named_and_strict_stops_there(place: Any, server: ModelServer) -> None:
    scripted(server)
    place.write(AGENT.replace('"pay": pay}', '"pay": lambda cents: "paid"}'))
    ended = place.run("agent.py", "book")
    assert ended.code == 0
    assert any("the tool pay: nothing of it was recorded" in line for line in ended.told)
    assert place.perdure("show").out.count("not protected: the tool pay: nothing of it was recorded") == 1
    ended = place.run("--strict", "agent.py", "again")
    assert ended.code == 5, ended
    assert "the tool pay" in "".join(ended.told[-3:])
    assert len(server.requests) == 5


def test_a_tool_that_was_named_as_unrecorded_is_not_performed_again_by_itself(place: Any, server: ModelServer) -> None:
    server.calls("mail", to="ada").calls("lookup", city="Oslo").says("Done.")
    place.write(AGENT.replace('"pay": pay}', '"mail": lambda to: note(f"mail {to}") or "sent"}'))
    place.touch("die before lookup")
    ended = place.run("agent.py", "book")
    assert ended.code == -9, ended
    assert place.lines() == ["mail ada"]
    assert re.match(r"perdure: agent.py was ended by SIGKILL, and \S+ is not started again by itself: ", ended.told[-3])
    assert ended.told[-3].endswith("a resume performs again what these tools did unrecorded: mail.")
    assert ended.told[-2:] == [
        "   safe: its 2 completed steps are saved, and not repeated.",
        "     do: if that is fine, the same command goes on with it; or protect the tools (docs: guides/any-script)",
    ]
    place.touch("die at the end")
    assert place.run("agent.py", "book").code == -9, "what an earlier process named is known"
    ended = place.run("agent.py", "book")
    assert (ended.code, ended.out) == (0, "said: Done.\n"), ended
    assert place.lines() == ["mail ada", "mail ada", "lookup Oslo 1", "mail ada"]


def test_a_tool_is_known_to_be_unrecorded_before_the_model_is_told_its_result(place: Any, server: ModelServer) -> None:
    server.calls("mail", to="ada").says("Done.")
    die = 'def die(request):\n    b"call_" in request.content and b"sent" in request.content and die_once("die")\n'
    asks = 'httpx.Client(event_hooks={"request": [die]}).post('
    script = AGENT.replace('"pay": pay}', '"mail": lambda to: note(f"mail {to}") or "sent"}')
    place.write(script.replace("def ask", f"{die}\ndef ask").replace("httpx.post(", asks))
    place.touch("die")
    ended = place.run("agent.py", "book")
    assert (ended.code, len(server.requests)) == (-9, 1), ended
    assert place.lines() == ["mail ada"]


FALLBACK = """
import asyncio, os, pathlib, signal
import httpx

def die_once():
    mark = pathlib.Path("die")
    if mark.exists():
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

def body(model):
    return {"model": model, "messages": [{"role": "user", "content": "Hello?"}]}

async def ask(base, model, **options):
    async with httpx.AsyncClient() as client:
        answer = await client.post(base + "/chat/completions", json=body(model), **options)
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]["content"]

async def main():
    base = os.environ["OPENAI_BASE_URL"]
    try:
        await ask("http://127.0.0.1:9/v1", "away")
    except httpx.ConnectError as error:
        print(type(error).__name__)
    try:
        await ask(base, "broken")
    except httpx.HTTPStatusError as error:
        print(error.response.status_code)
    try:
        async with asyncio.timeout(0.3):
            await ask(base, "slow", timeout=60)
    except TimeoutError:
        print("gave up")
    print(await ask(base, "good"))
    die_once()
    print(await ask(base, "last"))

asyncio.run(main())
"""


def test_a_script_that_went_another_way_after_a_failure_goes_the_same_way_again(
    place: Any, server: ModelServer
) -> None:
    """A server that was away, one that failed, and one that was too slow are no reason to lose the way."""
    gate = server.gate()
    server.when(model="broken").fails(500, times=None).says("never")
    server.when(model="slow").holds(gate).says("too late")
    server.when(model="good").says("Here.")
    server.when(model="last").says("Bye.")
    place.write(FALLBACK)
    place.touch("die")
    ended = place.run("agent.py")
    gate.open()
    before = "ConnectError\n500\ngave up\nHere.\n"
    assert (ended.code, ended.out) == (0, before + before + "Bye.\n"), ended
    assert [request.body["model"] for request in server.requests] == ["broken", "slow", "good", "last"]
    shown = place.perdure("show").out
    assert re.findall(r"✔ (\w+)\('Hello\?'\)(?: → ([\w ]+?))?\s+step", shown) == [
        ("away", "ConnectError"),
        ("broken", "HTTP 500"),
        ("slow", "given up"),
        ("good", ""),
        ("last", ""),
    ], shown


def test_an_error_that_ended_a_script_is_tried_again(place: Any, server: ModelServer) -> None:
    server.fails(500).says("At last.")
    place.write(AGENT)
    assert place.run("agent.py").code == 1
    ended = place.run("agent.py")
    assert (ended.code, ended.out) == (0, "said: At last.\n"), ended


RAISING = """
import pathlib, os, signal
import httpx

class PayError(Exception):
    def __init__(self, words, code):
        super().__init__(words)
        self.code = code

class Odd(Exception):
    def __init__(self, held):
        super().__init__(held)

def pay(cents):
    raise PayError("no money", 17)

def odd(key):
    raise Odd(object())

def leak(key):
    raise httpx.ConnectError("cannot reach /x?api_key=" + os.environ["WEATHER_API_KEY"])

def add(items, item):
    items.append(item)
    return "added"

def ask(messages):
    answer = httpx.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
                        json={"model": "gpt-5", "messages": messages}, timeout=60)
    return answer.raise_for_status().json()["choices"][0]["message"]

messages, basket = [{"role": "user", "content": "Do it."}], []
while (said := ask(messages)).get("tool_calls"):
    messages.append(said)
    for call in said["tool_calls"]:
        arguments = __import__("json").loads(call["function"]["arguments"])
        try:
            if call["function"]["name"] == "add":
                found = add(basket, arguments["item"])
            else:
                found = globals()[call["function"]["name"]](**arguments)
        except (PayError, Odd, httpx.ConnectError) as error:
            found = f"failed: {type(error).__name__}"
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
        print(found, basket, flush=True)
if pathlib.Path("die").exists():
    pathlib.Path("die").unlink()
    os.kill(os.getpid(), signal.SIGKILL)
raise RuntimeError("at last: " + os.environ["WEATHER_API_KEY"])
"""


def test_what_a_tool_raises_or_changes_is_the_same_live_and_replayed_and_no_secret_of_it_is_stored(
    place: Any, server: ModelServer
) -> None:
    server.calls("pay", cents=5).calls("odd", key="x").calls("leak", key="x").calls("add", item=7).says("Bye.")
    place.write(RAISING)
    place.touch("die")
    canary = "canary-5c02aa91e0b7"
    ended = place.run("agent.py", f"--key={canary}", WEATHER_API_KEY=canary)
    told = "failed: PayError []\nfailed: Odd []\nfailed: ConnectError []\nadded [7]\n"
    assert (ended.code, ended.out) == (1, told + told), ended
    assert ended.own.endswith(f"RuntimeError: at last: {canary}\n"), "what the script itself says is its own"
    assert len(server.requests) == 5
    for file in (place.folder / ".perdure").rglob("*"):
        assert not file.is_file() or canary.encode() not in file.read_bytes(), file
    assert canary not in place.perdure("show").out


def test_a_recorded_tool_that_comes_back_under_another_name_stops_the_run(place: Any, server: ModelServer) -> None:
    scripted(server)
    place.write(AGENT)
    place.touch("die before pay")
    assert place.run("--no-resume", "agent.py", "book").code == -9
    place.write(AGENT.replace("def lookup(", "def look_it_up(").replace('"lookup": lookup', '"lookup": look_it_up'))
    ended = place.run("agent.py", "book")
    assert ended.code == 5, ended
    assert "lookup was performed where it is not seen (renamed?), and may have acted a second time" in ended.err
    assert len(server.requests) == 2
    assert "pay 900" not in place.lines()


def test_what_is_not_protected_is_named_before_the_script_can_die(place: Any, server: ModelServer) -> None:
    scripted(server)
    place.write(AGENT.replace('"lookup": lookup', '"lookup": lambda **given: given'))
    place.touch("die before pay")
    ended = place.run("--no-resume", "agent.py", "book")
    assert ended.code == -9
    assert any("the tool lookup: nothing of it was recorded" in line for line in ended.told)


def test_a_run_of_an_id_that_has_completed_says_that_nothing_was_done(place: Any, server: ModelServer) -> None:
    scripted(server)
    place.write(AGENT)
    assert place.run("--id", "o-1", "agent.py").code == 0
    ended = place.run("--id", "o-1", "agent.py")
    assert (ended.code, ended.out) == (0, "")
    assert "run o-1 has completed before: nothing was executed" in ended.err


POOL = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def double(number):
    return 2 * number

if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("{method}")) as pool:
        print(*pool.map(double, [2, 3]))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.exhaustive)])
def test_processes_in_which_nothing_is_recorded_are_named(place: Any, method: str) -> None:
    place.write(POOL.replace("{method}", method))
    ended = place.run("agent.py")
    assert (ended.code, ended.out) == (0, "4 6\n"), ended
    assert [line for line in ended.told if "Process" in line] == [
        "perdure: not protected: multiprocessing.Process (agent.py:10)"
    ], ended

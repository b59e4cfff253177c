"""Arguments of a script that are secrets: not stored anywhere, and still what tells one command from another."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.adapters.http.redact import REDACTED, Redactor
from perdure.adapters.script.discretion import discreet
from perdure.testing.model_server import ModelServer

KEY = "sk-proj-0123456789abcdefghijklmnop"
AGENT = """
import os, sys, httpx
body = {"model": "gpt-5", "messages": [{"role": "user", "content": "my secret is " + sys.argv[-1]}]}
httpx.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=body, timeout=60).raise_for_status()
if os.path.exists("die"):
    os.unlink("die")
    os.kill(os.getpid(), 9)
print("end")
"""


@pytest.mark.parametrize(
    ("arguments", "hidden"),
    [
        (["--password", "hunter2"], [1]),
        (["--db-password=hunter2", "x"], [0]),
        (["-token", "abc", "def"], [1]),
        (["--OPENAI_API_KEY", "abc", "--secret-key=x"], [1, 2]),
        (["book", KEY, f"--header=Bearer {KEY}"], [1, 2]),
        (["--client-secret", "wxy", "--credentials", "zzz"], [1, 3]),
        (["--token", "--verbose", "x"], []),
        (["--max-tokens", "500", "--token-limit=9", "--key", "name", "--sort-key", "x", "password"], []),
        (["--password=", "", "book"], []),
        (["--" + 1000 * "long_" + "name", "x"], []),
    ],
)
def test_secrets_are_told_by_their_option_or_by_their_look(arguments: list[str], hidden: list[int]) -> None:
    kept = discreet(arguments, Redactor({}))
    assert [place for place, argument in enumerate(kept) if REDACTED in argument] == hidden
    for place, (given, stored) in enumerate(zip(arguments, kept, strict=True)):
        if place in hidden:
            secret = given.rpartition("=")[2].removeprefix("Bearer ")
            assert secret not in stored
            assert stored.startswith(given.removesuffix(secret))
        else:
            assert stored == given


def test_another_secret_is_another_command_and_the_same_is_the_same() -> None:
    kept = [discreet(["--password", secret], Redactor({})) for secret in ("one", "two", "one")]
    assert kept[0] == kept[2] != kept[1]


def test_what_an_option_gives_away_is_kept_out_of_requests_too(place: Any, server: ModelServer) -> None:
    server.says("One.").says("Two.")
    place.write(AGENT)
    canary = "canary 4e21 of no known look"
    place.touch("die")
    assert place.run("--no-resume", "agent.py", "--password", canary).code == -9
    ended = place.run("agent.py", "--password", canary)
    assert (ended.code, ended.out) == (0, "end\n"), ended
    assert len(server.requests) == 1, "the same command goes on"
    place.touch("die")
    assert place.run("--no-resume", "agent.py", "--password", "canary another").code == -9
    assert len(server.requests) == 2, "another secret is another run"
    for file in (place.folder / ".perdure").rglob("*"):
        assert not file.is_file() or b"canary" not in file.read_bytes(), file
    assert "canary" not in place.perdure("show").out
    refused = place.perdure("resume", "-", "--app", "agent.py")
    assert refused.code == 2, refused
    assert "was begun with arguments that are secrets, and not stored." in refused.err
    assert "canary" not in refused.err

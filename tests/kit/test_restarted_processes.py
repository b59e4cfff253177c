"""Every process of a trial is a program started again: it loads the agent anew, in its own folder, and hashes anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faces.conftest import Result
from tests.kit.desk import Desk
from tests.sampling import every

HEAD = """
    import json, uuid
    from pathlib import Path

    @perdure.step
    def look(what: str) -> str:
        return f"seen {what}"
"""

DIFFERS = {
    "the order of a set": """
    @perdure.agent
    def work() -> list[str]:
        return sorted(look(name) for name in {"ada", "bob", "cid", "dee", "eve", "fay"})
""",
    "drawn while the module is loaded": """
    SESSION = uuid.uuid4().hex

    @perdure.agent
    def work() -> str:
        return look(SESSION)[:4]
""",
}

SOUND = {
    "a file of the folder that the module was loaded in": """
    LEDGER = Path.cwd() / "ledger.txt"

    @perdure.effect(in_flight_seconds=0)
    def book(what: str) -> str:
        with LEDGER.open("a") as file:
            file.write(f"{what}\\n")
        return what

    @book.check
    def booked(intent: perdure.Intent) -> perdure.Verdict:
        what = intent.arguments["what"]
        found = LEDGER.exists() and what in LEDGER.read_text().split()
        return perdure.happened(what) if found else perdure.did_not_happen()

    @perdure.agent
    def work() -> str:
        return book(look("ada").partition(" ")[2])
""",
    "a folder that the module makes": """
    Path("data").mkdir(exist_ok=True)

    @perdure.step
    def save(text: str) -> str:
        Path("data/x").write_text(text)
        return text

    @perdure.agent
    def work() -> str:
        return save(look("ada"))
""",
    "an exception class of its own": """
    class Declined(Exception): ...

    @perdure.step
    def price(what: str) -> int:
        raise Declined(what)

    @perdure.step
    def read(text: str) -> object:
        return json.loads(text)

    @perdure.agent
    def work() -> list[str]:
        said = []
        try:
            price("a")
        except Declined as error:
            said.append(str(error))
        try:
            read("{")
        except json.JSONDecodeError as error:
            said.append(str(error)[:9])
        return said
""",
}


@pytest.fixture
def place(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def crashed(place: Desk, body: str, stride: int) -> Result:
    place.write("app.py", HEAD + body)
    return place.crash("--jobs", "2", "--sample", str(stride), "app.py:work")


@every(sampled=12)
@pytest.mark.parametrize("what", DIFFERS)
def test_what_differs_from_process_to_process_is_found(place: Desk, what: str, stride: int) -> None:
    result = crashed(place, DIFFERS[what], stride)
    assert result.code == 1, result
    assert "no longer matches its code" in result.out + result.err


@every(sampled=12)
@pytest.mark.parametrize("what", SOUND)
def test_what_each_process_makes_for_itself_is_no_fault(place: Desk, what: str, stride: int) -> None:
    result = crashed(place, SOUND[what], stride)
    assert result.code == 0, result

"""`perdure signal`: a named message reaches the run that waits for it, once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faces.waiting import ASKING


@pytest.fixture
def listening(place: Any) -> Any:
    place.write("work.py", ASKING)
    assert place.python("work.py", "listen").code == 3
    return place


def test_payload_reaches_the_run(listening: Any) -> None:
    name = listening.name()
    assert listening.runs()[0]["next"] == f"perdure signal {name} go <json>"
    result = listening.perdure("signal", name, "go", '{"speed": 3}', "--by", "Ada")
    assert result.code == 0, result
    assert result.out.splitlines() == [
        f"{name}  signal go sent",
        f"  next: perdure resume {name} --app work.py",
    ]
    assert listening.python("work.py", "listen").out == "result: heard {'speed': 3}\n"
    assert "wait_for  signal 'go' came (by Ada)" in listening.perdure("show", name).out


def test_without_payload_it_is_null(listening: Any) -> None:
    listening.perdure("signal", "-", "go")
    assert listening.python("work.py", "listen").out == "result: heard None\n"


def test_signal_nobody_waits_for_is_kept_and_said_to_be(listening: Any) -> None:
    name = listening.name()
    result = listening.perdure("signal", name, "goo")
    assert result.code == 0, result
    assert f"{name}  signal goo sent; kept until the run waits for it (it waits for go now)\n" in result.out
    assert f"  next: perdure signal {name} go <json>\n" in result.out


def test_refusals_are_three_lines(listening: Any) -> None:
    for arguments, said in (
        (["go", "{"], "signal go { is not JSON"),
        (["\x1b[2J"], "is not usable"),
        ([""], "is not usable"),
        (["go", "1", "--by", "\n"], "is no name"),
    ):
        result = listening.perdure("signal", "-", *arguments)
        assert result.code == 2, result
        assert said in result.err
        assert len(result.err.splitlines()) == 3, result
        assert (result.out + result.err).replace("\n", "").isprintable()
    assert listening.perdure("signal", "-").code == 2
    listening.perdure("cancel", "-", "--yes")
    ended = listening.perdure("signal", "-", "go")
    assert ended.code == 2, ended
    assert "is cancelled: it hears nothing any more." in ended.err


def test_programs_are_told_whether_it_is_awaited(listening: Any) -> None:
    early = listening.perdure("signal", listening.name()[:-2], "later", "--json").json()
    assert (early["signal"], early["is_awaited"], early["run"]["reason"]) == ("later", False, "signal")
    sent = listening.perdure("signal", "-", "go", "--json").json()
    assert (sent["is_awaited"], sent["run"]["next"]) == (True, f"perdure resume {listening.name()} --app work.py")

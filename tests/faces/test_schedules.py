"""`perdure schedules`: what starts by itself, when, what came of it; switching off and on; and what is refused."""

from __future__ import annotations

from typing import Any

import apsw
import pytest

from perdure.records import Schedule, sealed_schedule
from perdure.store import open_store
from tests.faces.conftest import Place

AHEAD = 4_000_000_000.0
"""A moment of 2096."""


def put(place: Place, name: str, **fields: Any) -> None:
    given = {"cron": "30 9 * * MON-FRI", "timezone": "Europe/Berlin", "catch_up": "last", "next_at": AHEAD, **fields}
    store = open_store(str(place.database))
    agent = name.partition(":")[0]
    assert store.change_schedule(None, sealed_schedule(Schedule(name, agent, arguments="{}", **given)))
    store.close()


@pytest.fixture
def shop(place: Place) -> Place:
    """A store with a run of a tick, and three schedules."""
    place.write("shop.py", "@perdure.agent\ndef digest() -> int:\n    return 1\n")
    place.python("-c", "import perdure, shop; perdure.run(shop.digest, run_id='seen')")
    put(place, "shop.digest:morning", last_at=1.0, last_run="seen")
    put(place, "shop.digest:night", cron="@daily", timezone="UTC", next_at=5.0)
    put(place, "shop.weekly", last_at=1.0, last_run="gone")
    return place


def listed(place: Place) -> dict[str, dict[str, Any]]:
    answer = place.perdure("schedules", "--json").json()
    return {each["name"]: each for each in answer["schedules"]}


def test_schedules_are_listed_with_what_comes_next_and_what_came_last(shop: Place) -> None:
    told = shop.perdure("schedules").out.splitlines()
    assert told[0].split() == ["SCHEDULE", "CRON", "ZONE", "NEXT", "LAST", "RUN"]
    name = shop.name()
    assert [" ".join(line.split()) for line in told[1:]] == [
        f"shop.digest:morning 30 9 * * MON-FRI Europe/Berlin 2096-10-02 09:06 {name} completed",
        "shop.digest:night @daily UTC 1970-01-01 00:00, due none yet",
        "shop.weekly 30 9 * * MON-FRI Europe/Berlin 2096-10-02 09:06 removed",
    ]
    found = listed(shop)
    assert (found["shop.digest:morning"]["last_run"], found["shop.digest:morning"]["last_state"]) == (name, "completed")
    assert [each["state"] for each in found.values()] == ["on", "due", "on"]


def test_schedule_is_switched_off_and_on_by_the_end_of_its_name(shop: Place) -> None:
    assert "off" in shop.perdure("schedules", "--off", "night").out
    found = listed(shop)["shop.digest:night"]
    assert (found["state"], found["next_at"]) == ("off", 5.0)
    assert found["off_at"] > 0
    assert shop.perdure("schedules", "--off", "night").code == 0
    assert listed(shop)["shop.digest:night"] == found
    assert shop.perdure("schedules", "--on", "shop.digest:night").code == 0
    again = listed(shop)["shop.digest:night"]
    assert (again["state"], again["off_at"]) == ("on", 0.0)
    assert again["next_at"] > found["off_at"]


def test_schedule_is_forgotten(shop: Place) -> None:
    assert shop.perdure("schedules", "--forget", "weekly").code == 0
    assert list(listed(shop)) == ["shop.digest:morning", "shop.digest:night"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--off", "noon"], "There is no schedule 'noon'; known: shop.digest:morning, shop.digest:night, shop.weekly."),
        (["--off", "digest"], "There is no schedule 'digest'"),
        (["--off", ""], "There is no schedule ''"),
        (["--off", "night", "--on", "night"], "one at a time"),
    ],
)
def test_what_is_not_clear_is_refused(shop: Place, options: list[str], words: str) -> None:
    before = listed(shop)
    result = shop.perdure("schedules", *options)
    assert result.code == 2, result
    assert words in result.err
    assert "   safe: nothing was changed." in result.err
    assert listed(shop) == before


def test_two_schedules_with_one_end_are_both_named(shop: Place) -> None:
    put(shop, "other.digest:night")
    result = shop.perdure("schedules", "--off", "night")
    assert result.code == 2
    assert "2 schedules end in 'night'; known: other.digest:night, shop.digest:night." in result.err


def test_damaged_schedule_is_shown_as_such_and_can_be_forgotten(shop: Place) -> None:
    database = apsw.Connection(str(shop.database))
    database.execute("UPDATE schedules SET cron = '* * * * *' WHERE name = 'shop.digest:night'")
    database.close()
    assert listed(shop)["shop.digest:night"]["state"] == "damaged"
    assert "damaged" in shop.perdure("schedules").out
    assert "schedule shop.digest:night: is damaged" in shop.perdure("verify").out
    refused = shop.perdure("schedules", "--off", "night")
    assert refused.code == 2
    assert "perdure schedules --forget shop.digest:night" in refused.err
    assert shop.perdure("schedules", "--forget", "night").code == 0
    assert "shop.digest:night" not in listed(shop)


def test_store_without_schedules_says_who_declares_them(place: Place) -> None:
    open_store(str(place.database)).close()
    assert "perdure worker FILE" in place.perdure("schedules").out


def test_what_looks_like_the_id_of_a_tick_is_nobodys_choice(shop: Place) -> None:
    result = shop.perdure("start", "shop.py:digest", "--id", "shop.digest@2026-01-01T09:00Z")
    assert result.code == 2
    assert "looks like the id of the run of a tick" in result.err


def test_agent_whose_ticks_could_not_call_it_is_refused_when_it_is_loaded(place: Place) -> None:
    place.write("shop.py", "@perdure.agent(schedule=perdure.Schedule('@daily'))\ndef digest(region: str) -> int: ...\n")
    result = place.perdure("worker", "shop.py")
    assert result.code == 2
    assert "missing a required argument: 'region'" in result.err


def test_agent_whose_schedules_share_a_name_is_refused_when_it_is_loaded(place: Place) -> None:
    both = "[perdure.Schedule('@daily'), perdure.Schedule('@hourly')]"
    place.write("shop.py", f"@perdure.agent(schedule={both})\ndef digest() -> int: ...\n")
    result = place.perdure("worker", "shop.py")
    assert result.code == 2
    assert "not each has a name of its own" in result.err

"""`perdure upgrade-check`: asked before a deploy, in a pipeline or at a terminal; it changes nothing."""

from __future__ import annotations

import pytest

from tests.faces.conftest import Place

SHOP = """
    @perdure.step
    def price(item: str) -> int:
        print("BODY")
        return len(item)

    @perdure.effect
    def refund(order: str, cents: int) -> str:
        print("BODY")
        return "done"

    @perdure.agent(name="desk")
    def desk(order: str) -> str:
        cents = price(order)
        perdure.ask("Refund?", options=["yes", "no"])
        return refund(order, cents)
"""
NEW = SHOP.replace("price(order)", "price(order.upper())").replace("def desk(", "def desk_two(")
GONE = SHOP.replace('name="desk"', 'name="counter"')
BROKEN = SHOP.replace("cents = price(order)", 'cents = price(order) + int("x")')
SLOW = SHOP.replace("cents = price(order)", "cents = price(order); time.sleep(60)")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A folder with two runs that wait for an answer, one that was answered, and newer versions of their code."""
    place = Place(tmp_path_factory.mktemp("shop"))
    for name, text in (("shop", SHOP), ("new", NEW), ("gone", GONE), ("broken", BROKEN), ("slow", SLOW)):
        place.write(f"{name}.py", text)
    for order in ("a", "b", "c"):
        assert place.perdure("run", "shop.py:desk", f"order={order}").code == 3
    place.perdure("answer", "-", "yes")
    assert place.perdure("resume", "-", "--app", "shop.py").code == 0
    return place


def waiting(shop: Place) -> str:
    return str(shop.perdure("ls", "--state", "waiting", "--json").json()["runs"][0]["name"])


def test_code_that_fits_passes_and_says_where_each_run_goes_on(shop: Place) -> None:
    before = shop.database.read_bytes()
    checked = shop.perdure("upgrade-check", "shop.py")
    assert checked.code == 0, checked
    assert checked.out.count("goes on at step 2: ask (waits)") == 2
    assert checked.out.splitlines()[-1] == "2 unfinished runs checked against shop.py: 2 go on"
    assert "BODY" not in checked.out + checked.err
    assert shop.database.read_bytes() == before


def test_code_that_diverges_fails_and_shows_both_calls(shop: Place) -> None:
    checked = shop.perdure("upgrade-check", "new.py")
    assert checked.code == 5, checked
    assert "recorded: price(item='a')" in checked.out
    assert "now:      price(item='A')" in checked.out
    assert checked.out.splitlines()[-1].endswith("2 would park")
    told = shop.perdure("upgrade-check", "new.py", "--json")
    assert told.code == 5
    assert told.json()["fine"] is False
    assert (told.json()["checked"], told.json()["diverging"]) == (2, 2)
    assert {run["outcome"] for run in told.json()["runs"]} == {"diverges"}


def test_agent_that_is_gone_fails_by_name(shop: Place) -> None:
    checked = shop.perdure("upgrade-check", "gone.py")
    assert checked.code == 5, checked
    assert "the code has no agent desk; its agents are: counter\n" in checked.out
    assert "perdure.demo" not in checked.out


def test_code_that_raises_and_code_that_takes_long_are_told_apart_from_divergence(shop: Place) -> None:
    raised = shop.perdure("upgrade-check", "broken.py")
    assert raised.code == 1, raised
    assert "ValueError: invalid literal for int()" in raised.out
    late = shop.perdure("upgrade-check", "slow.py", waiting(shop), "--timeout", "1s")
    assert late.code == 1, late
    assert "took longer than 1 s, after 1 step" in late.out


def test_one_run_or_exported_ones_can_be_named(shop: Place) -> None:
    name = waiting(shop)
    one = shop.perdure("upgrade-check", "new.py", name, "--json").json()
    assert [run["name"] for run in one["runs"]] == [name]
    assert shop.perdure("export", "--all", "-o", "runs").code == 0
    exported = shop.perdure("upgrade-check", "new.py", "--from", "runs", "--store", "nowhere/runs.db", "--json")
    assert exported.code == 5, exported
    assert exported.json()["checked"] == 2
    assert shop.perdure("upgrade-check", "shop.py", "--from", "runs").code == 0
    assert not (shop.folder / "nowhere").exists()


def test_unclear_requests_are_refused(shop: Place) -> None:
    assert shop.perdure("upgrade-check", "shop.py", "--all", "--from", "x").code == 2
    (shop.folder / "empty").mkdir()
    empty = shop.perdure("upgrade-check", "shop.py", "--from", "empty")
    assert empty.code == 2
    assert "holds no exported run" in empty.err
    finished = shop.perdure("ls", "--state", "completed", "--json").json()["runs"][0]["name"]
    over = shop.perdure("upgrade-check", "shop.py", finished)
    assert over.code == 2
    assert "no new code meets it" in over.err
    missing = shop.perdure("upgrade-check", "shop.py", "--from", "nothing.jsonl")
    assert missing.code == 2
    assert "Traceback" not in missing.err
    (shop.folder / "cut.jsonl").write_text("{}\n")
    assert shop.perdure("upgrade-check", "shop.py", "--from", "cut.jsonl").code == 6

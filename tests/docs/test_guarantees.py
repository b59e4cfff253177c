"""The page of the promises: each has its three parts, and every test that it names exists."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.transcripts import DOCS, ROOT

PAGE = (DOCS / "guarantees.md").read_text(encoding="utf-8")
PROMISES = dict(re.findall(r"^## (P\d+): .*?\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
NAMED = re.findall(r"^- `(tests/\S+)`$", PAGE, re.MULTILINE)


def test_there_are_ten_promises_in_order() -> None:
    assert list(PROMISES) == [f"P{number}" for number in range(1, 11)]


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_says_what_it_means_what_not_and_what_proves_it(promise: str) -> None:
    text = PROMISES[promise]
    assert "**Means.**" in text
    assert "**Does not mean.**" in text
    assert len(re.findall(r"^- `tests/\S+::test_\w+`$|^- `tests/\S+::\w+::test_\w+`$", text, re.MULTILINE)) >= 3


@pytest.mark.parametrize("node", NAMED)
def test_every_named_test_exists(node: str) -> None:
    path, *names = node.split("::")
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for name in names:
        found = [one for one in body if getattr(one, "name", "") == name]
        assert found, f"{name} is not in {path}"
        body = getattr(found[0], "body", [])

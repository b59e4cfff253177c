"""The fixture `model`: the environment leads to it, and what its script did not expect fails the test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TESTS = """
import os

from tests.adapters.asking import chat

def test_the_environment_leads_here(model):
    assert os.environ["OPENAI_BASE_URL"] == model.openai_url
    assert os.environ["ANTHROPIC_BASE_URL"] == model.url
    model.says("hello")
    assert chat(model.url, "go").status == 200

def test_a_surprise(model):
    model.says("hello")
    chat(model.url, "go", "hello", "and?")
"""


def test_the_fixture_serves_and_a_surprise_fails_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert re.search(r"2 passed, 1 error", done.stdout), done.stdout
    assert "its script did not expect POST /v1/chat/completions: The script has 1 turn" in done.stdout

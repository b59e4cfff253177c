"""The site builds without a warning, and nothing on it leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.transcripts import DOCS, EVERY_PAGE, ROOT

LINKED = [*EVERY_PAGE, *sorted(ROOT.glob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", str(DOCS), str(built)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return built


class Page(HTMLParser):
    """The names on a page and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {name for name in (found.get("id"), found.get("name")) if name}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))


def test_every_page_is_on_the_site_and_in_its_contents(site: Path) -> None:
    contents = Page((site / "index.html").read_text(encoding="utf-8")).links
    for page in EVERY_PAGE:
        made = str(page.relative_to(DOCS).with_suffix(".html"))
        assert (site / made).exists(), made
        assert made in contents or made == "index.html", made


def test_what_is_typed_is_shown_as_it_is_typed(site: Path) -> None:
    shown = (site / "reference" / "json.html").read_text(encoding="utf-8")
    assert "perdure resume --json" in shown
    assert "\N{EN DASH}json" not in shown


def test_no_link_of_the_site_leads_nowhere(site: Path) -> None:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link) or link == "#":
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            known = pages.get(target)
            if not target.exists() or (anchor and known is not None and anchor not in known.anchors):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert dead == []


@pytest.mark.parametrize(
    "page", [*EVERY_PAGE, *sorted(ROOT.glob("*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_no_link_between_files_leads_nowhere(page: Path) -> None:
    targets = [link.partition("#")[0] for link in _LINK.findall(page.read_text(encoding="utf-8"))]
    inside = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    assert [target for target in inside if not (page.parent / target).exists()] == []

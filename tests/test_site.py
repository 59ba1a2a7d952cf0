"""The site has every page, and its pictures are those that the script draws."""

from __future__ import annotations

import re
import runpy
from html import unescape
from pathlib import Path

from tests.test_public_names import NAMESPACES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NAVIGATION = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n", 1)[1]
LISTED = set(re.findall(r"([\w/-]+\.md)$", NAVIGATION, re.MULTILINE))


def test_e3_every_page_is_in_the_navigation() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    hidden = {page for page in pages if page.startswith("decisions/") and page != "decisions/README.md"}
    assert pages - hidden == LISTED


def test_e3_every_public_namespace_has_a_page_of_its_names() -> None:
    for name in ["mcp_toolset", *(f"mcp_toolset.{each}" for each in NAMESPACES)]:
        page = DOCS / "api" / f"{name.removeprefix('mcp_toolset.')}.md"
        assert page.read_text() == f"# {name}\n\n::: {name}\n"


def test_e3_the_pictures_are_those_of_the_script() -> None:
    pictures = runpy.run_path(str(ROOT / "scripts" / "pictures"))["PICTURES"]
    for name, picture in pictures.items():
        assert (DOCS / "images" / f"concept-{name}.svg").read_text() == picture, "run scripts/pictures"


def test_e3_the_recording_is_of_the_demonstration_as_it_is() -> None:
    drawn = (DOCS / "images" / "demo.svg").read_text()
    shown = " ".join(unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawn))
    tour = (ROOT / "examples" / "demo" / "tour.py").read_text()
    titles = re.findall(r'_title\(\s*"([^"]+)"', tour)
    assert len(titles) > 5
    assert [title for title in titles if title not in shown] == [], "run scripts/record"
    assert "Every step held." in shown and str(ROOT) not in drawn and len(drawn) < 300_000
    for page in (ROOT / "README.md", DOCS / "index.md"):
        assert "images/demo.svg)" in page.read_text()


def test_u111_the_recording_begins_with_what_it_shows():
    drawn = (DOCS / "images" / "demo.svg").read_text()
    keyframes = re.search(r"@keyframes \w+\{0%\{transform:translateX\(-(\d+)px\)", drawn)
    assert keyframes is not None and int(keyframes[1]) >= 4 * 84
    assert re.search(r"animation-name:\w+;transform:translateX\(-\d+px\)", drawn)


def test_u111_the_readme_says_first_what_the_product_is():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 200
    first = " ".join(text[: text.index("\n## ")].lower().split())
    for word in (
        "typed python toolsets",
        "nested toolset",
        "hooks run at the bridge",
        "grant",
        "remotetoolset",
    ):
        assert word in first, word


def test_u111_every_example_is_in_the_index():
    index = (ROOT / "examples" / "README.md").read_text()
    folders = {path.relative_to(ROOT / "examples").parts[0] for path in (ROOT / "examples").rglob("*.py")}
    assert {name for name in folders if "](" + name + ")" not in index} == set()


def test_e3_each_picture_is_on_a_page() -> None:
    pages = "".join(path.read_text() for path in DOCS.glob("*.md"))
    pictures = sorted(path.name for path in (DOCS / "images").glob("concept-*.svg"))
    assert [name for name in pictures if f"](images/{name})" not in pages] == []

"""Checks the internal links and anchors of a built site: `python tools/site_links.py FOLDER`."""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The links of a page, and the anchors in it."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links and anchors."""
        found = dict(attrs)
        self.anchors.update(value for name in ("id", "name") if (value := found.get(name)))
        link = found.get("href") if tag in ("a", "link") else found.get("src")
        if link is not None:
            self.links.append(link)


@cache
def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken_links(site: Path) -> list[str]:
    """`page: link` of each internal link that leads nowhere."""
    return [
        f"{path.relative_to(site)}: {link}"
        for path in sorted(site.rglob("*.html"))
        for link in _read(path).links
        if not _leads_somewhere(path, link)
    ]


def _leads_somewhere(page: Path, link: str) -> bool:
    url = urlsplit(link)
    if url.scheme or url.netloc:
        return True
    target = (page.parent / unquote(url.path)).resolve() if url.path else page
    if target.suffix != ".html":
        return target.is_file()
    return target.is_file() and unquote(url.fragment) in _read(target).anchors


if __name__ == "__main__":
    problems = broken_links(Path(sys.argv[1]).resolve())
    sys.exit("\n".join(problems) or None)

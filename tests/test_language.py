"""Plain English: words that do not come back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
PLACES: Final = ("src", "csrc", "docs", "tools", "examples", "contrib", "bench")
PAGES: Final = ("README", "ARCHITECTURE", "SECURITY", "CONTRIBUTING", "CHANGELOG")
SUFFIXES: Final = {".py", ".c", ".h", ".md", ".in", ".pml", ".sh", ".service"}
#: As words of their own: an identifier that contains one is not meant.
BANNED: Final = re.compile(r"\b([Ww]hoever|[Nn]obody|[Ss]omebody|is none|are none)\b")


def pages() -> list[Path]:
    found = [path for place in PLACES for path in (ROOT / place).rglob("*")]
    found = [path for path in found if path.suffix in SUFFIXES and "_build" not in path.parts]
    return sorted([*found, *(ROOT / f"{page}.md" for page in PAGES if page != "CONTRIBUTING")])


def test_words_that_a_colleague_would_not_say_do_not_come_back() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in pages()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for word in BANNED.findall(line)
    ]
    assert found == []

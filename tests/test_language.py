"""Plain English: words that must not be used again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from messages_page import messages

ROOT = Path(__file__).resolve().parent.parent
PLACES: Final = ("src", "csrc", "docs", "tools", "examples", "contrib", "bench")
PAGES: Final = ("README", "ARCHITECTURE", "SECURITY", "CONTRIBUTING", "CHANGELOG")
#: CHANGELOG is history, CONTRIBUTING quotes what is not to be written.
QUOTING: Final = ("CHANGELOG.md", "CONTRIBUTING.md")
#: Pages that follow from the source whenever the site is built.
GENERATED: Final = ("map.md", "messages.md")
SUFFIXES: Final = {".py", ".c", ".h", ".md", ".in", ".pml", ".sh", ".service"}
#: As words of their own: an identifier that contains one is not meant.
BANNED: Final = re.compile(
    r"\b([Ww]hoever|[Nn]obody|[Ss]omebody|[Aa]nybody|[Ee]verybody|in number|is none|are none)\b"
)

#: "If" and not "where" for a condition.
CONDITION: Final = re.compile(
    r"\b(?:None|False|True|NULL|NaN|empty|also|even|only|needed|made|absent) where\b"
    r"|\b[Ww]here (?:there (?:is|are|was|were)\b|(?:it|they|that|this|these|those|nothing|one) "
    r"(?:has|have|can|cannot|does|fails|needs|(?:is|are|was|were) (?:not|no|known|missing|omitted))\b)"
)
#: Things carry, report, show and get; persons say, tell, hear and know.
SPEAKING: Final = re.compile(
    r"\b(?:[Dd]rivers?|[Cc]lients?|[Dd]evices?|kernel|models?|files?|versions?|executors?|sessions?|messages?"
    r"|packets?|process(?:es)?|library|engines?|peer|callbacks?|operands?|requests?|signatures?|suite|log) "
    r"(?:says?|said|tells?|told|hears?|heard|knows?|knew)\b"
    r"|\btells the\b|\btold of\b|\bsays (?:whether|why|how|what|so|which|that)\b|\bhears? of\b"
)
#: What a message does not hold: objects that say or know, and "is no file" for "is not a file".
NOT_IN_MESSAGES: Final = re.compile(
    r"\b(?:says?|said|tells?|told|hears?|heard|knows)\b|\b(?:is|are|was) no (?!longer)\w"
    r"|\bthere (?:is|are) no\b"
)

#: The same in the names of tests, which are sentences, too.
NOT_IN_NAMES: Final = re.compile(
    r"_(?:told|tells|says|hears|knows|nobodys?|whoever|somebody|anybody|everybody|(?:is|are)_none)(?:_|$)"
)


def pages() -> list[Path]:
    found = [path for place in PLACES for path in (ROOT / place).rglob("*")]
    found = [path for path in found if path.suffix in SUFFIXES and "_build" not in path.parts]
    found = [path for path in found if path.name not in GENERATED]
    return sorted([*found, *(ROOT / f"{page}.md" for page in PAGES if page != "CONTRIBUTING")])


def test_words_that_a_colleague_would_not_say_do_not_come_back() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in pages()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for word in BANNED.findall(line)
    ]
    assert found == []


def test_conditions_begin_with_if() -> None:
    read = [path for path in pages() if not str(path.relative_to(ROOT)).startswith(QUOTING)]
    assert [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in read
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if CONDITION.search(line)
    ] == []


def test_things_do_not_speak_in_prose() -> None:
    own = [path for path in pages() if not str(path.relative_to(ROOT)).startswith(QUOTING)]
    assert [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in own
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if SPEAKING.search(re.sub(r"`tests/[^`]*`", "", line))
    ] == []


def test_messages_speak_of_things_and_not_of_persons() -> None:
    assert [
        message
        for message in messages()
        if NOT_IN_MESSAGES.search(re.sub(r"\{.*?\}", "", message.text))
    ] == []


def test_names_of_tests_are_plain_sentences() -> None:
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "src/nnburst/testing").rglob("test_*.py")]
    names = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in re.findall(
            r"^ *(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE
        )
    ]
    assert [name for name in names if NOT_IN_NAMES.search(name)] == []

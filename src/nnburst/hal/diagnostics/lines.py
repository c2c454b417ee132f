"""Text from any source as one line of a log."""

from __future__ import annotations

from typing import Final

#: Characters of a line.
_LONGEST: Final = 1024
_ESCAPED: Final = {
    code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160), 0x2028, 0x2029)
}


def one_line(text: str) -> str:
    """`text` with control characters escaped, and cut if it is long."""
    line = text[:_LONGEST].translate(_ESCAPED)
    if max(len(line), len(text)) <= _LONGEST:
        return line
    return f"{line[:_LONGEST]}… ({len(text)} characters)"

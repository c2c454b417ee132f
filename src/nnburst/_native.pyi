"""Types of the cffi module built by csrc/build.py: an island of Any behind typed wrappers."""

from typing import Any

ffi: Any
lib: Any

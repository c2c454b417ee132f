"""Sphinx: `make docs` builds docs/_build/html; a warning is an error."""

import importlib.metadata
import re
import sys
from pathlib import Path

import numpy.typing as npt
from sphinx.application import Sphinx

import nnburst.fmq.message_queue

# Imported for type checkers only, so that clients start fast; here annotations are evaluated.
nnburst.fmq.message_queue.npt = npt

# These pages are made here and not kept: every change of a command, a message or a module would change them.
_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent / "tools"))
import cli_page  # noqa: E402
import map_page  # noqa: E402
import messages_page  # noqa: E402

(_HERE / "commands.md").write_text(cli_page.page(), encoding="utf-8")
(_HERE / "map.md").write_text(map_page.page(), encoding="utf-8")
(_HERE / "messages.md").write_text(messages_page.page(), encoding="utf-8")

project = "nnburst"
author = copyright = "The nnburst developers"  # noqa: A001 - Sphinx's word
version = release = importlib.metadata.version("nnburst")
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["tables.css"]
html_search_scorer = str(_HERE / "search_scorer.js")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "adr/template.md"]
# Programs of a cluster have these; the pages are built without them.
autodoc_mock_imports = ["ray", "grpc", "tritonclient"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_use_ivar = True  # an attribute is described once, in the docstring of its class
myst_heading_anchors = 4
# Properties called `type` are NNAPI's word, and shadow the builtin in annotations.
suppress_warnings = ["ref.python"]

#: Pages of the root that are pages of the site, too; other files of the repository are offered as they are.
_ROOT_PAGES = {
    "README.md": "readme.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "bench/README.md": "benchmarks.md",
}
_INCLUDED = re.compile(r"^```\{include\} \.\./(\S+\.md)\n```$", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def _site_link(link: re.Match[str]) -> str:
    """A link of a page of the root, as one of this folder."""
    target = link[1].removeprefix("docs/")
    return _ROOT_PAGES.get(target, target if target != link[1] else f"../{target}")


def _include(_app: Sphinx, name: str, source: list[str]) -> None:
    """Put pages of the root in the place of their include, with links that lead to pages of the site."""

    def text(found: re.Match[str]) -> str:
        return _LINK.sub(_site_link, (_HERE.parent / found[1]).read_text(encoding="utf-8"))

    source[0] = _INCLUDED.sub(text, source[0])
    if name == "adr/README":  # decisions are below their list, and not in the menu
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _include)

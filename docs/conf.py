"""Sphinx: `make docs` builds docs/_build/html; a warning is an error."""

import importlib.metadata

import nnburst.client.memory.arguments
from nnburst.compat.conversion.timing import ExecutionTiming

# Imported for type checkers only, so that clients start fast; here annotations are evaluated.
nnburst.client.memory.arguments.ExecutionTiming = ExecutionTiming  # type: ignore[attr-defined]

project = "nnburst"
author = copyright = "The nnburst developers"  # noqa: A001 - Sphinx's word
version = release = importlib.metadata.version("nnburst")
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "adr/template.md"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_use_ivar = True  # an attribute is described once, where its class says what it is
# Pages of the root link to each other as files of the repository; tests/test_docs.py checks those.
# Properties called `type` are NNAPI's word, and shadow the builtin in annotations.
suppress_warnings = ["myst.xref_missing", "ref.python"]

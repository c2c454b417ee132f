"""Sphinx: `make docs` builds docs/_build/html; a warning is an error."""

import importlib.metadata

project = "nnburst"
author = copyright = "The nnburst developers"  # noqa: A001 - Sphinx's word
version = release = importlib.metadata.version("nnburst")
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Pages of the root link to each other as files of the repository; tests/test_docs.py checks those.
suppress_warnings = ["myst.xref_missing"]

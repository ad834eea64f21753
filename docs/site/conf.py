"""Sphinx with MyST: it reads the pages as they are, and `-W` makes an error of each broken reference."""

from __future__ import annotations

from typing import Any

from pygments.lexers.special import TextLexer

project = "autotensor"
author = "The autotensor authors"
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown"}
exclude_patterns = ["site/**"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
html_theme = "furo"
html_title = "autotensor"
html_show_sourcelink = False


def setup(app: Any) -> None:
    """Our pages call what a program prints `output`."""
    app.add_lexer("output", TextLexer)

"""Sphinx settings. `make docs` builds the site with warnings as errors; reference pages are generated first."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import reference

project = "Counterfoil"
author = "The Counterfoil maintainers"
version = release = version_of("counterfoil")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "images"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
suppress_warnings = ["misc.highlighting_failure"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
copybutton_prompt_text = "$ "

html_theme = "pydata_sphinx_theme"
html_title = "Counterfoil"
html_theme_options = {
    "navbar_align": "left",
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}

reference.write(Path(__file__).parent / "reference")

"""Sphinx settings. `make docs` builds the site with warnings as errors; reference pages are generated first."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generate

project = "Counterfoil"
author = "The Counterfoil maintainers"
version = release = version_of("counterfoil")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "images", "jupyter_execute"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_output_stderr = "remove"
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

generate.write(Path(__file__).parent / "generated")

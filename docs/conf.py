"""The site: Markdown pages, built by Sphinx; a warning is an error (`make docs`)."""

from perdure.version import VERSION

project = "perdure"
author = "the perdure authors"
copyright = "the perdure authors, Apache-2.0"  # noqa: A001 - Sphinx wants this name
version = release = VERSION

extensions = ["myst_parser"]
exclude_patterns = ["generate"]
source_suffix = {".md": "markdown"}
nitpicky = True
# What is typed stays as it is typed: two hyphens are no dash.
smartquotes = False
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"perdure {VERSION}"
html_extra_path = ["reference/checkpoint.schema.json"]
html_copy_source = False
html_show_sphinx = False
highlight_language = "text"

"""How the site is built: `make docs`, into docs/_build/html. It needs no network, to build or to read."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from fleetgp import __version__

project = "FleetGP"
author = "The FleetGP developers"
project_copyright = "The FleetGP developers, Apache-2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_design",
    # Our own, in _ext:
    "house_docstrings",
    "public_names",
    "commands",
    "options",
    "mathml",
    "reports",
]
exclude_patterns = ["_build"]
nitpicky = True
# Annotations name types of other libraries, and of ours that are not public.
nitpick_ignore_regex = [("py:.*", ".*")]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# `name` in a docstring is code.
default_role = "literal"
smartquotes = False

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
add_module_names = False

html_theme = "pydata_sphinx_theme"
html_title = "FleetGP"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_favicon = "_static/fleet.svg"
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
html_sidebars = {"**": ["whole-tree.html"]}
html_theme_options = {
    "logo": {"image_light": "_static/fleet.svg", "image_dark": "_static/fleet.svg", "text": "FleetGP"},
    "navbar_center": [],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "article_footer_items": [],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

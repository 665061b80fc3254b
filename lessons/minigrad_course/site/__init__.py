"""The course as pages that need no server, no network and no JavaScript to be read: ``minigrad site build``.

A generator of our own. sphinx-gallery, which runs scripts of ``# %%`` cells, fails on ours in four places:
helper modules of two lessons have one name, helpers become pages, prose is read as reStructuredText, and its
pages of times load scripts from foreign hosts. MyST, Quarto and marimo fetch parts from the network when they
build; MkDocs and its themes are at their end. Here markdown-it-py and Pygments, which rich needs already,
render text and code; the rest is one template, one style sheet and one script. The pages of modules are read
from the source, without importing it, and have the search, the colors and the keys of all other pages.
"""

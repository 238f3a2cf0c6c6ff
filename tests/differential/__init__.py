"""The same Workflows on the embedded engine and on a real Argo, and a comparison of what both make of them.

`corpus/` holds Workflows written for it, a file a feature; `grammar` makes more at random; `recorded/` is what Argo
4.0.2 did with all of them, so that those without a cluster can compare too. `python -m tests.differential` runs them.
"""

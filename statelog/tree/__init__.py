"""Content-addressed values that share structure between versions.

Pure: nodes come from a source and new ones go to a `Workspace`; no file is opened
here. FORMAT.md section 4 draws the nodes.
"""

"""Content-addressed values that share structure between versions.

This package opens no file: it reads nodes from a source and adds new ones to a `Workspace`.
FORMAT.md section 4 draws the nodes.
"""

"""Workloads that `statelog bench` does not run: `python -m benchmarks [NAME]...` prints them the same way.

They measure what a change to the library may make slower: time travel, long lists, reducers, retention, large files.
`pytest benchmarks` runs all of both kinds under pytest-benchmark, for comparing two versions.
"""

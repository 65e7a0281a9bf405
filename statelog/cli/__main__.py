"""`python -m statelog.cli` is `statelog`."""

from statelog.cli.application import main

main()

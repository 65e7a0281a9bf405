"""`python -m statelog` is `statelog`, where the folder of scripts is not on the PATH."""

from statelog.cli import main

main()

"""`python -m statelog` runs the command `statelog` if the folder of scripts is not on the PATH."""

from statelog.cli import main

main()

"""`statelog demo`: an agent is killed, and carries on. Every figure it prints is measured as it runs."""

from statelog.cli.demo.command import demo

__all__ = ["demo"]

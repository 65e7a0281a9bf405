"""`statelog demo`: kills an agent and resumes it. Every printed figure is measured during the demo."""

from statelog.cli.demo.command import demo

__all__ = ["demo"]

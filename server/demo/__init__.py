"""The demo: a scripted agent that drives the server as any MCP client would."""

from kernelgate.server.demo.play import run_demo

__all__ = ["run_demo"]

"""`python -m kernelgate.server` is the command line."""

from kernelgate.server.cli import main

main()

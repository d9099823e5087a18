"""`python -m dp2ddp`."""

from dp2ddp.cli import main

main()

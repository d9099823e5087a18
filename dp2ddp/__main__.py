"""`dp2ddp`, and `python -m dp2ddp`."""

import sys


def run() -> None:
    """The command line; Ctrl-C while it is being imported is one line, too."""
    try:
        from dp2ddp.cli import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("dp2ddp: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    run()

"""`dp2ddp`, and `python -m dp2ddp`."""

import sys


def run() -> None:
    """The command line; Ctrl-C while it is being imported is one line, too."""
    try:
        if sys.argv[1:2] == ["check"]:
            from dp2ddp.review.first_look import finds_nothing

            try:
                if finds_nothing(sys.argv[2:]):
                    return
            except OSError as error:
                from dp2ddp.cli import end_without_output

                end_without_output(error)
        from dp2ddp.cli import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("dp2ddp: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    run()

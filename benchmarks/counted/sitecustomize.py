"""Python imports this by itself in every process that has this folder on PYTHONPATH: ranks count what they do.

Which processes count: the ranks of torchrun, and the one process of `dp2ddp run --mode dp`; not what starts them.
"""

import os
import sys

if "COUNTS" in os.environ and ("RANK" in os.environ or (sys.orig_argv[1:2] or [""])[0].endswith("boot.py")):
    if "COUNTS_OVERLAP" in os.environ:
        import overlapping

        overlapping.begin()
    else:
        import counting

        counting.begin()

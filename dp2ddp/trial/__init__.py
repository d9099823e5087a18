"""A trial: a script on W devices, all its runs, and the verdict. Used by the command and by `dp2ddp.testing`."""

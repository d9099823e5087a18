"""Where ranks stand, and where they part: what a run that goes no further is asked."""

"""Copies of the user's folder: for a run that may write where it likes, and for `convert -o`.

scratch.py     the copies that one run gets: by a mount where the system allows it, else by links
mounted.py     a layer over the folder (overlayfs), in a namespace (namespace.py) that only the run sees
linked.py      a copy in which data are links; unfolding.py opens them in the run, where somebody writes;
               leavings.py asks afterwards whether something was written all the same
project.py     a converted copy of a project, to be trained in and moved away
"""

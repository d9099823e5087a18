"""One file a rule; `ls` is the table of contents.

1xx process and device, 2xx model, 3xx data, 5xx what the script writes, 9xx hazards only.
"""

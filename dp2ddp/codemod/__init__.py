"""Project -> Facts -> Plan -> Conversion; never imports torch, never runs the user's code."""

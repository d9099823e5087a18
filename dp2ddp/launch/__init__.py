"""A script on several processes: what starts them, here or on a cluster, as a command or as a file."""

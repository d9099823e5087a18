"""One file a rule; `ls` is the table of contents: what is wrong in code that uses DistributedDataParallel (6xx)."""

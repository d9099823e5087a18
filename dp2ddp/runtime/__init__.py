"""Running a script in either mode, on real or virtual devices."""

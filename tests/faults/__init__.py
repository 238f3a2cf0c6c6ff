"""What a job on a cluster must stand, done to real jobs on purpose: `python -m tests.faults`."""

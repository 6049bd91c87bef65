"""Access to a cluster through the user's own kubectl: plans, jobs, checks, probes."""

"""`rightsizer estimate`."""

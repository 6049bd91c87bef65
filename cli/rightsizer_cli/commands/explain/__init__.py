"""`rightsizer explain`."""

"""`rightsizer plan`."""

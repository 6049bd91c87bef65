"""`rightsizer doctor`."""

"""`rightsizer advise`."""

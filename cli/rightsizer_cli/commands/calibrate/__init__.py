"""`rightsizer calibrate`."""

import os

os.environ["RIGHTSIZER_CALIBRATION"] = ""  # no test reads or writes what this user has measured

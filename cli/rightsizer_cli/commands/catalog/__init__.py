"""`rightsizer models`, `rightsizer gpus` and `rightsizer frameworks`."""

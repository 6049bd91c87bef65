"""The reconcile of one plan: a snapshot in, actions out. Pure."""

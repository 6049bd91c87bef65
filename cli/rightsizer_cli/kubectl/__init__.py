"""`kubectl rightsizer`: TrainingPlans that live in a cluster, through the user's own kubectl."""

"""The sections of a plan's spec: model, workload, resources and launch, with their defaults."""

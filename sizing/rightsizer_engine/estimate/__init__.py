"""Predictions for given layouts: step time, memory, goodput, cost, and how far each may be off."""

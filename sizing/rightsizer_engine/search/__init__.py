"""The decision for a request: legal layouts, their prices, the chosen plan, and the reasons for it."""

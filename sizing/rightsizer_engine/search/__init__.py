"""From a request to a decision: legal layouts, their prices, the chosen plan, and the reasons for it."""

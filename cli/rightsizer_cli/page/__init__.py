"""The what-if page: one question as a form, its plan beside it."""

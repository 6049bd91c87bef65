"""Layouts and their prices: families, cached tables, priced rows, and rows as options."""

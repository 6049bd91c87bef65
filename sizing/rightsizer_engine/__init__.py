"""The engine: from a request to the fewest GPUs and the layout that meet it. No I/O, no clock, no state.

Its verb is `rightsizer_engine.search.size.size(request)`.
"""

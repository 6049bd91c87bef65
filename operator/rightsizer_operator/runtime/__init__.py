"""The operator as a process: watches, work queue, scraper, probes."""

__all__: list[str] = []

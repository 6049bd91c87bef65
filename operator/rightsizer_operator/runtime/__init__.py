"""The operator as a process: watches, work queue, scraper, probes."""

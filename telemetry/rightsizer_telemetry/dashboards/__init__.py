"""The Grafana dashboards as code: pages of panels, their queries, thresholds and links."""

"""Helm, at a cluster of the tests."""

import subprocess


def helm_at(cluster):
    """helm(...) there, as it ended."""
    path = cluster.control("tool", "helm").strip()

    def run(*arguments):
        argv = [path, f"--kubeconfig={cluster.kubeconfig}", *map(str, arguments)]
        return subprocess.run(argv, check=False, capture_output=True, text=True)

    return run

#!/bin/sh
# What install.sh made. rpm calls this with 1 after an upgrade has installed the new version: nothing to do then.
set -eu
[ "${1:-}" != 1 ] || exit 0
cd "${RIGHTSIZER_PREFIX:-/opt/rightsizer}" 2>/dev/null || exit 0
rm -f bin/python
find lib -name __pycache__ -type d -prune -exec rm -rf {} +

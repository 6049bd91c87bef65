#!/usr/bin/env bash
# Installs the Debian package that the tests marked `prometheus` need, and skips it where both programs are.
set -euo pipefail

. "$(dirname "$0")/../packages.sh"

need prometheus "the server that the tests start on loopback" prometheus
need prometheus "promtool, which tests rules" promtool

install_missing

#!/usr/bin/env bash
# Installs the Debian packages that the tests marked `page` need, and skips them where both programs are.
set -euo pipefail

. "$(dirname "$0")/../packages.sh"

need chromium "the browser in which the page is tested" chromium
need chromium-driver "how a test types and clicks in it" chromedriver

install_missing

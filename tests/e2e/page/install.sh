#!/usr/bin/env bash
# Installs what the tests marked `page` need: Debian's Chromium where there is none, and axe-core, which finds
# barriers for those who use no mouse or see little.
set -euo pipefail

. "$(dirname "$0")/../packages.sh"

need chromium "the browser in which the page is tested" chromium
need chromium-driver "how a test types and clicks in it" chromedriver
need npm "to install axe-core" npm

install_missing
axe=4.14.1
cd "$(dirname "$0")/../../.."
grep -qs "\"version\": \"$axe\"" build/page/node_modules/axe-core/package.json ||
  npm install --silent --no-save --no-audit --no-fund --ignore-scripts --prefix build/page "axe-core@$axe"

#!/usr/bin/env bash
# Installs the Debian package that the tests marked `prometheus` need, and skips it where both programs are.
set -euo pipefail

fail() { echo "error: $*" >&2; exit 1; }

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then exit 0; fi
echo "prometheus: the server that the tests start on loopback, and promtool, which tests rules" >&2
[ "$(id -u)" = 0 ] || fail "installing prometheus needs root"
command -v apt-get >/dev/null || fail "no apt-get here: install prometheus with this system's package manager"
# policy-rc.d keeps Debian from starting a server of its own: the tests start one each on a free port
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null

#!/usr/bin/env bash
# Installs the Debian packages of the test cluster's Slurm, and skips what is there. Needs root only to install.
set -euo pipefail

fail() { echo "error: $*" >&2; exit 1; }

missing=()
need() { # need PACKAGE WHY PROGRAM-OR-FILE...
  local package=$1 why=$2 found
  shift 2
  for found in "$@"; do
    if command -v "$found" >/dev/null || [ -e "$found" ]; then return; fi
  done
  echo "$package: $why" >&2
  missing+=("$package")
}

PATH=$PATH:/usr/sbin:/sbin
libraries=/usr/lib/$(uname -m)-linux-gnu
need slurmctld "Slurm's controller" slurmctld
need slurmd "Slurm's daemon of a node; six of them run" slurmd
need slurm-client "sbatch, squeue, scontrol" sbatch
need munge "signs the messages between them" munged
need slurm-wlm-basic-plugins "job_submit/lua and cli_filter/lua" "$libraries/slurm-wlm/job_submit_lua.so"
need lua-socket "the plugin's way to the daemon's unix socket" "$libraries/lua/5.1/socket/unix.so" \
  /usr/share/lua/5.1/socket.lua
need util-linux "unshare gives every machine its own processes" unshare nsenter

[ ${#missing[@]} -gt 0 ] || exit 0
[ "$(id -u)" = 0 ] || fail "installing ${missing[*]} needs root"
command -v apt-get >/dev/null || fail "no apt-get here: install ${missing[*]} with this system's package manager"
# policy-rc.d keeps Debian from starting daemons of its own: the cluster starts what it needs
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
echo "installing ${missing[*]}" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

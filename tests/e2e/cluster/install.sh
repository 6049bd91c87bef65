#!/usr/bin/env bash
# Installs the Debian packages that the test cluster needs beside what it builds itself, and skips what is there.
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
need containerd "runs the containers of each node" containerd
need runc "what containerd starts a container with" runc
need containernetworking-plugins "connects pods to their node's bridge" /usr/lib/cni/bridge /opt/cni/bin/bridge
need iptables "kube-proxy writes Services as iptables rules" iptables
need iproute2 "makes network namespaces and the wires between them" ip
need procps "sysctl lets the nodes forward packets" sysctl
need util-linux "nsenter starts a node's daemons in its network" nsenter
need openssl "makes the cluster's certificates" openssl

[ ${#missing[@]} -gt 0 ] || exit 0
[ "$(id -u)" = 0 ] || fail "installing ${missing[*]} needs root"
command -v apt-get >/dev/null || fail "no apt-get here: install ${missing[*]} with this system's package manager"
# policy-rc.d keeps Debian from starting a containerd of its own: the cluster starts one for each node
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
echo "installing ${missing[*]}" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

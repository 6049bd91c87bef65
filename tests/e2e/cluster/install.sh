#!/usr/bin/env bash
# Installs the Debian packages that the test cluster needs beside what it builds itself, and skips what is there.
set -euo pipefail

. "$(dirname "$0")/../packages.sh"

need containerd "runs the containers of each node" containerd
need runc "what containerd starts a container with" runc
need containernetworking-plugins "connects pods to their node's bridge" /usr/lib/cni/bridge /opt/cni/bin/bridge
need iptables "kube-proxy writes Services as iptables rules" iptables
need iproute2 "makes network namespaces and the wires between them" ip
need procps "sysctl lets the nodes forward packets" sysctl
need util-linux "nsenter starts a node's daemons in its network" nsenter
need openssl "makes the cluster's certificates" openssl

install_missing

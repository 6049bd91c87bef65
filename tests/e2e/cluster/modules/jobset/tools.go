//go:build tools

// Package tools pins the commands that cluster.py builds from this module graph.
package tools

import _ "sigs.k8s.io/jobset"

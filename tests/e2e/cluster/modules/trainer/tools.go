//go:build tools

// Package tools pins the commands that cluster.py builds from this module graph.
package tools

import _ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"

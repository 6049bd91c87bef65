// Command pause is the sandbox process of every pod: it holds the pod's namespaces and does nothing.
// It is static because a sandbox, unlike the other containers, does not get the machine's /usr.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}

// Command coredns is CoreDNS with the three plugins that a cluster of the tests needs. The usual build has sixty, among
// them the client libraries of several clouds.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func init() {
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"} // in the order in which they see a query
}

func main() {
	coremain.Run()
}

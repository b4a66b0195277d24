// Package serve shows a recording that goes on over HTTP: profiles of the next
// seconds for `go tool pprof`, counters for Prometheus, a page for people.
//
// It follows one target after the other. A recording is a Session, which whoever
// makes a Server opens; the package knows neither eBPF nor processes, so it is
// tested with recordings written by hand.
//
// # Counters
//
// Counters hold the sums of all targets that were recorded since the server
// began: those of targets that have ended, and those of the present one up to
// now. They never decrease. Durations of driver calls are corrected by the
// probes' bias, as in the table; where a correction would make a sum smaller than
// it was, it stays.
//
// # Who may ask
//
// Only GET and HEAD. The Host header must name this machine, so that a web page
// cannot read anything by a name that it has pointed at the server. With a token,
// everything but /healthz needs it: as a bearer token, or as the password of
// basic authentication, for browsers and `go tool pprof`.
package serve

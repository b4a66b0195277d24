//go:build receivers

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/sim/simtest"
)

// collected is an OpenTelemetry Collector that writes the profiles that it takes to
// a file.
type collected struct {
	t    *testing.T
	url  string
	file string
	cmd  *exec.Cmd
	log  strings.Builder
}

const collectorConfig = `
receivers:
  otlp:
    protocols:
      http:
        endpoint: %[1]s
exporters:
  file:
    path: %[2]s
    format: proto
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    profiles:
      receivers: [otlp]
      exporters: [file]
`

func startCollector(t *testing.T) *collected {
	t.Helper()
	program := os.Getenv("STAGEPROF_COLLECTOR")
	if program == "" {
		t.Fatal("STAGEPROF_COLLECTOR names no collector: use scripts/test-receivers.sh")
	}
	dir := t.TempDir()
	c := &collected{t: t, file: filepath.Join(dir, "profiles")}
	address := freeAddress(t)
	c.url = "http://" + address
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, collectorConfig, address, c.file), 0o600); err != nil {
		t.Fatal(err)
	}
	c.cmd = exec.Command(program, "--config", config, "--feature-gates=service.profilesSupport")
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			c.cmd.Process.Kill()
			c.cmd.Wait()
		}
	})
	for deadline := time.Now().Add(simtest.Patience); ; time.Sleep(50 * time.Millisecond) {
		response, err := http.Get(c.url)
		if err == nil {
			response.Body.Close()
			return c
		}
		if time.Now().After(deadline) {
			t.Fatalf("the collector does not answer: %v", err)
		}
	}
}

// freeAddress is one of this machine's own where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// stop ends the collector and gives what it has written: each message behind its
// length.
func (c *collected) stop(to *received) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		c.t.Fatalf("the collector: %v; it said\n%s", err, c.log.String())
	}
	rest, err := os.ReadFile(c.file)
	if err != nil {
		c.t.Fatal(err)
	}
	for len(rest) > 0 {
		if len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
			c.t.Fatalf("%d bytes are no message", len(rest))
		}
		size := 4 + int(binary.BigEndian.Uint32(rest))
		to.addOTLP(rest[4:size])
		rest = rest[size:]
	}
}

// A collector has of a recording what its profile has.
func TestCollectorTakesARecording(t *testing.T) {
	saved := save(t, t.TempDir())
	c := startCollector(t)
	if r := stageprof(t, "export", saved, "--otlp", c.url); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	got := &received{t: t, counts: simtest.Counts{}}
	c.stop(got)
	file := filepath.Join(t.TempDir(), "profile")
	if r := stageprof(t, "report", saved, "--output", file); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := &received{t: t, counts: simtest.Counts{}}
	want.addPprof(raw)
	if diff := cmp.Diff(want.counts, got.counts); diff != "" || want.counts.Total().Calls == 0 {
		t.Errorf("calls and bytes (-profile +collector):\n%s", diff)
	}
	if got.profiles != 1 {
		t.Errorf("%d messages, want one", got.profiles)
	}
}

// What serve sends to a collector is the drivers' own truth.
func TestCollectorTakesWhatServeSends(t *testing.T) {
	c := startCollector(t)
	got := &received{t: t, counts: simtest.Counts{}}
	serveSendsTheTruth(t, got, func() { c.stop(got) }, "--otlp", c.url)
}

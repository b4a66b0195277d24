package main

import (
	"bytes"
	"log/slog"
	"testing"
)

func TestConsoleKeepsStatusBelowLog(t *testing.T) {
	var out bytes.Buffer
	c := &console{out: &out, terminal: true}
	c.setStatus("%d calls", 1)
	c.setStatus("%d calls", 1)
	c.logger(slog.LevelInfo).Info("probes are live", "sites", 3)
	c.setStatus("%d calls", 2)
	c.setStatus("")
	want := eraseLine + "1 calls" +
		eraseLine + "level=INFO msg=\"probes are live\" sites=3\n" + "1 calls" +
		eraseLine + "2 calls" +
		eraseLine
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestConsoleNoStatusInFiles(t *testing.T) {
	var out bytes.Buffer
	c := newConsole(&out)
	c.setStatus("%d calls", 1)
	c.logger(slog.LevelWarn).Info("not said")
	c.logger(slog.LevelWarn).Warn("said")
	if got, want := out.String(), "level=WARN msg=said\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// otlpTotals sums a message's profiles by column.
func otlpTotals(t *testing.T, message []byte) map[string]uint64 {
	t.Helper()
	var m collector.ExportProfilesServiceRequest
	if err := proto.Unmarshal(message, &m); err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, p := range m.ResourceProfiles[0].ScopeProfiles[0].Profiles {
		for _, s := range p.Samples {
			out[m.Dictionary.StringTable[p.SampleType.TypeStrindex]] += uint64(s.Values[0])
		}
	}
	return out
}

// What a receiver gets, and what is written into a file, sums to the profile that
// report -o writes.
func TestExportOTLP(t *testing.T) {
	var received []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var err error
		if received, err = io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()

	dir := t.TempDir()
	saved, file, profile := save(t, dir), filepath.Join(dir, "run.otlp"), filepath.Join(dir, "profile")
	for _, to := range []string{server.URL, file} {
		r := stageprof(t, "export", saved, "--otlp", to, "--label", "cluster=a")
		if r.code != exitOK || r.stderr != "" || !strings.Contains(r.stdout, to) {
			t.Fatalf("export to %s: %+v", to, r)
		}
	}
	if r := stageprof(t, "report", saved, "-o", profile); r.code != exitOK {
		t.Fatal(r.stderr)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != string(received) {
		t.Error("the file differs from what was sent")
	}
	totals := otlpTotals(t, received)
	for _, column := range []string{"calls", "wall", "cpu", "bytes"} {
		if want := profileSum(t, profile, column); totals[column] != want || want == 0 {
			t.Errorf("%s: received %d, the profile has %d", column, totals[column], want)
		}
	}
}

// One recording that can't be sent does not keep the others from being sent.
func TestExportSendsTheOthers(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			http.Error(w, "not that one", http.StatusBadRequest)
		}
	}))
	defer server.Close()
	saved := save(t, t.TempDir())
	r := stageprof(t, "export", saved, "nothing.rec", saved, "--pyroscope", server.URL)
	if r.code != exitError || requests.Load() != 2 || strings.Count(r.stdout, "sent to") != 1 {
		t.Errorf("%+v after %d requests", r, requests.Load())
	}
	for _, want := range []string{"not that one", "nothing.rec", "2 of 3 recordings were not sent"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("stderr %q, want %q in it", r.stderr, want)
		}
	}
}

func TestExportErrors(t *testing.T) {
	saved := save(t, t.TempDir())
	cases := map[string]struct {
		args []string
		code int
		want string
	}{
		"no file":            {[]string{"--otlp=x"}, exitUsage, "which recording"},
		"nowhere":            {[]string{saved}, exitUsage, "--pyroscope"},
		"two places":         {[]string{saved, "--otlp=x", "--parca=http://x:1"}, exitUsage, "exclude"},
		"no URL":             {[]string{saved, "--pyroscope=localhost:4040"}, exitUsage, "http://HOST:PORT"},
		"other scheme":       {[]string{saved, "--otlp=grpc://localhost"}, exitUsage, "http://HOST:PORT"},
		"password":           {[]string{saved, "--otlp=http://me:secret@localhost"}, exitUsage, "--token-file"},
		"no port":            {[]string{saved, "--parca=http://localhost"}, exitUsage, "7070"},
		"path for gRPC":      {[]string{saved, "--parca=http://localhost:7070/api"}, exitUsage, "path"},
		"two into a file":    {[]string{saved, saved, "--otlp=x"}, exitUsage, "room for one"},
		"header for a file":  {[]string{saved, "--otlp=x", "--header=A=b"}, exitUsage, "--header"},
		"no time":            {[]string{saved, "--parca=http://x:1", "--timeout=0s"}, exitUsage, "--timeout"},
		"label of no value":  {[]string{saved, "--otlp=x", "--label=a"}, exitUsage, "NAME=VALUE"},
		"bad label":          {[]string{saved, "--otlp=x", "--label=a-b=c"}, exitUsage, "letters"},
		"label of ours":      {[]string{saved, "--otlp=x", "--label=pid=1"}, exitUsage, "itself"},
		"label twice":        {[]string{saved, "--otlp=x", "--label=a=1", "--label=a=2"}, exitUsage, "already"},
		"bad header":         {[]string{saved, "--otlp=http://x", "--header=a b=c"}, exitUsage, "header"},
		"no such recording":  {[]string{"nothing.rec", "--otlp=x"}, exitError, "nothing.rec"},
		"no such token file": {[]string{saved, "--otlp=http://x", "--token-file=nothing"}, exitError, "token"},
		"unwritable":         {[]string{saved, "--otlp=/dev/null/x"}, exitError, "/dev/null/x"},
		"nobody there":       {[]string{saved, "--otlp=http://127.0.0.1:1", "--timeout=50ms"}, exitError, "--timeout 50ms is over"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := stageprof(t, append([]string{"export"}, c.args...)...)
			if r.code != c.code || !strings.Contains(r.stderr, c.want) || r.stdout != "" {
				t.Errorf("exit code %d, stdout %q, stderr %q; want %d and %q", r.code, r.stdout, r.stderr, c.code, c.want)
			}
		})
	}
}

func TestServiceName(t *testing.T) {
	python := &recording.Python{}
	for want, target := range map[string]recording.Target{
		"train":     {Python: python, Exe: "/usr/bin/python3", Cmdline: []string{"python3", "-u", "/x/train.py", "--a"}},
		"pkg.train": {Python: python, Exe: "/usr/bin/python3", Cmdline: []string{"python3", "-m", "pkg.train", "x.py"}},
		"python3":   {Python: python, Exe: "/usr/bin/python3", Cmdline: []string{"python3", "-m"}},
		"trainer":   {Exe: "/opt/trainer", Cmdline: []string{"trainer", "x.py"}},
	} {
		if got := serviceOf(target); got != want {
			t.Errorf("%q: %q, want %q", target.Cmdline, got, want)
		}
	}
	if serviceOf(recordingtest.Pipeline().Target) == "" {
		t.Error("a recording has no service")
	}
}

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/spf13/pflag"

	"stageprof/agent"
	"stageprof/sim/simtest"
)

// server is a serve command that answers.
type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	exited chan struct{}

	mu     sync.Mutex
	stderr strings.Builder
}

// startServe starts a serve command on a free port.
func startServe(t *testing.T, args ...string) *server {
	t.Helper()
	return startServer(t, command(t, serveArgs(args...)...))
}

func serveArgs(args ...string) []string {
	return append([]string{"serve", "--listen", "127.0.0.1:0", "--no-gpu"}, args...)
}

func startServer(t *testing.T, cmd *exec.Cmd) *server {
	t.Helper()
	s := &server{t: t, cmd: cmd, exited: make(chan struct{})}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		defer close(s.exited)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			s.mu.Lock()
			fmt.Fprintln(&s.stderr, lines.Text())
			s.mu.Unlock()
			if _, url, ok := strings.Cut(lines.Text(), "msg=serving address="); ok {
				address <- url
			}
		}
		s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.exited
	})
	select {
	case s.url = <-address:
	case <-s.exited:
		t.Fatalf("serve ended: %s", s.said())
	case <-time.After(simtest.Patience):
		t.Fatalf("serve does not begin: %s", s.said())
	}
	return s
}

func (s *server) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.String()
}

func (s *server) get(path string) (int, string) {
	s.t.Helper()
	client := http.Client{Timeout: simtest.Patience}
	response, err := client.Get(s.url + path)
	if err != nil {
		s.t.Fatalf("%v; it said\n%s", err, s.said())
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// await waits until a metric has a value.
func (s *server) await(metric string, value float64) {
	s.t.Helper()
	deadline := time.Now().Add(simtest.Patience)
	for s.metrics()[metric] != value {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s does not become %v; serve said\n%s", metric, value, s.said())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var sample = regexp.MustCompile(`(?m)^(stageprof_\w+(?:\{.*\})?) (\S+)$`)

func (s *server) metrics() map[string]float64 {
	s.t.Helper()
	status, body := s.get("/metrics")
	if status != http.StatusOK {
		s.t.Fatalf("metrics: %d %s", status, body)
	}
	values := map[string]float64{}
	for _, m := range sample.FindAllStringSubmatch(body, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			s.t.Fatal(err)
		}
		values[m[1]] = v
	}
	return values
}

var callLabels = regexp.MustCompile(`^stageprof_driver_(calls|errors|requested_bytes)_total\{.*stage="(.*)",symbol="(.*)"\}$`)

// counts are the counters of driver calls in the form of the driver's truth.
func (s *server) counts() simtest.Counts {
	s.t.Helper()
	counts := simtest.Counts{}
	for series, v := range s.metrics() {
		m := callLabels.FindStringSubmatch(series)
		if m == nil {
			continue
		}
		n := simtest.Count{}
		switch m[1] {
		case "calls":
			n.Calls = uint64(v)
		case "errors":
			n.Errors = uint64(v)
		default:
			n.Bytes = uint64(v)
		}
		counts.Add(simtest.Key{Tag: strings.TrimPrefix(m[2], "none"), Symbol: m[3]}, n)
	}
	return counts
}

// interrupt ends serve as ^C does.
func (s *server) interrupt() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.exited:
	case <-time.After(simtest.Patience):
		s.t.Fatalf("serve does not end: %s", s.said())
	}
	if code := s.cmd.ProcessState.ExitCode(); code != exitOK {
		s.t.Errorf("exit code %d: %s", code, s.said())
	}
}

const up = "stageprof_target_up"

// At the end of the target the counters are the driver's truth, and stay.
func TestServeCountsEqualTruth(t *testing.T) {
	p, ready := caller(t, "--threads", "4", "--stages", "3")
	s := startServe(t, "--pid", strconv.Itoa(p.PID), "--probes", "all")
	s.await(up, 1)
	if status, body := s.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, body)
	}
	release(t, ready)
	p.Wait()
	s.await(up, 0)
	truth := p.Truth().Counts().By(simtest.ByTagAndSymbol)
	if diff := simtest.Diff(truth, s.counts()); diff != "" || truth.Total().Calls == 0 {
		t.Errorf("the counters differ from the driver's truth:\n%s", diff)
	}
	m := s.metrics()
	if seen := m["stageprof_driver_calls_seen_total"]; seen != float64(truth.Total().Calls) {
		t.Errorf("%v calls seen, the driver counted %d", seen, truth.Total().Calls)
	}
	_, body := s.get("/metrics")
	if problems, err := promlint.New(strings.NewReader(body)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	if status, _ := s.get("/healthz"); status != http.StatusServiceUnavailable {
		t.Errorf("/healthz after the end: %d", status)
	}
	s.interrupt()
}

// The next incarnation is recorded too, and the counters go on.
func TestServeFollowsRestarts(t *testing.T) {
	dir := t.TempDir()
	s := startServe(t, "--match", regexp.QuoteMeta(dir), "--user", strconv.Itoa(os.Geteuid()), "--follow", "--probes", "all")
	if status, _ := s.get("/healthz"); status != http.StatusServiceUnavailable {
		t.Errorf("/healthz before the first target: %d", status)
	}
	want := simtest.Counts{}
	for i := range 2 {
		ready := filepath.Join(dir, fmt.Sprint("go", i))
		p := simtest.Start(t, simtest.Tester(t, "calls", "--ready", ready, "--markers", simtest.Markers(t), "--calls", "500", "--stages", "2"))
		p.WaitLine("up")
		s.await("stageprof_targets_total", float64(i+1))
		s.await(up, 1)
		release(t, ready)
		p.Wait()
		s.await(up, 0)
		for k, n := range p.Truth().Counts().By(simtest.ByTagAndSymbol) {
			want.Add(k, n)
		}
		if diff := simtest.Diff(want, s.counts()); diff != "" {
			t.Errorf("after %d targets the counters differ from the drivers' truth:\n%s", i+1, diff)
		}
	}
	s.interrupt()
}

// The stock tool fetches profiles of a training pipeline by itself.
func TestServeForPprof(t *testing.T) {
	pipeline := simtest.Start(t, simtest.Command{Path: "python3", Args: []string{filepath.Join(simtest.Root(t), "sim", "pipeline.py"), "--duration", "120"}})
	pipeline.WaitLine("ready")
	s := startServe(t, "--pid", strconv.Itoa(pipeline.PID))
	s.await(up, 1)
	for name, want := range map[string]string{"cuda": "copy_to_cpu", "stages": "stage:copy_to_cpu"} {
		cmd := exec.Command("go", "tool", "pprof", "-top", "-tagroot=stage", s.url+"/debug/pprof/"+name+"?seconds=1")
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s%s", name, err, out, stderr.String())
		}
		for line := range strings.Lines(stderr.String()) {
			if !strings.HasPrefix(line, "Fetching profile over HTTP from ") && !strings.HasPrefix(line, "Saved profile in ") {
				t.Errorf("%s: pprof says %q", name, line)
			}
		}
	}
	s.interrupt()
}

// Without a word about them no Python stacks are read.
func TestServeFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args   []string
		stacks agent.PythonStacks
		want   string // part of the error, "" for none
	}{
		"nothing":         {nil, agent.PythonStacksOff, ""},
		"stacks":          {[]string{"--python-stacks=sampled"}, agent.PythonStacksSampled, ""},
		"unknown stacks":  {[]string{"--python-stacks=some"}, "some", `"some"`},
		"pairs of probes": {[]string{"--stages-from=markers,usdt:lib.so:prov:begin,end"}, agent.PythonStacksOff, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var c serveConfig
			flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
			c.addFlags(flags)
			if err := flags.Parse(append(test.args, "--pid=1")); err != nil {
				t.Fatal(err)
			}
			err := c.Validate()
			if (test.want == "") != (err == nil) || err != nil && (!isUsage(err) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
			if c.Agent.PythonStacks != test.stacks {
				t.Errorf("Python stacks of calls: %q, want %q", c.Agent.PythonStacks, test.stacks)
			}
		})
	}
}

func TestServeTrouble(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p, ready := caller(t, "--hold", "-")
	q, _ := caller(t, "--hold", "-")
	both := regexp.QuoteMeta(filepath.Dir(filepath.Dir(ready))) // the test's own folder
	pid := strconv.Itoa(p.PID)
	tests := map[string]struct {
		args []string
		code int
		want []string
	}{
		"port in use":      {[]string{"--pid", pid, "--listen", taken.Addr().String()}, 1, []string{"address already in use"}},
		"nobody":           {[]string{"--pid", "4194305"}, 1, []string{"no such process"}},
		"pair of probes":   {[]string{"--pid", "4194305", "--stages-from", "usdt:lib.so:p:begin,end,nvtx", "--sync-debt=false", "--python-stacks", "off"}, 1, []string{"no such process"}},
		"unknown stacks":   {[]string{"--pid", pid, "--python-stacks", "some"}, 2, []string{"sampled"}},
		"nobody matches":   {[]string{"--match", "no process is called this"}, 1, []string{"no process that has mapped"}},
		"two match":        {[]string{"--match", both}, 1, []string{"more than one", pid, strconv.Itoa(q.PID)}},
		"open token":       {[]string{"--pid", pid, "--token-file", file("open", "x", 0o644)}, 1, []string{"chmod 600"}},
		"empty token":      {[]string{"--pid", pid, "--token-file", file("empty", "\nx", 0o600)}, 1, []string{"no token"}},
		"no token file":    {[]string{"--pid", pid, "--token-file", "/nowhere"}, 1, []string{"/nowhere"}},
		"no process":       {nil, 2, []string{"--pid", "--match"}},
		"two processes":    {[]string{"--pid", pid, "--match", "x"}, 2, []string{"exclude"}},
		"another's":        {[]string{"--match", regexp.QuoteMeta(filepath.Dir(ready)), "--user", "65534"}, 1, []string{"no process that has mapped"}},
		"a pid's user":     {[]string{"--pid", pid, "--user", "root"}, 2, []string{"--match"}},
		"no user":          {[]string{"--match", "x", "--user", "no one here"}, 2, []string{"no one here"}},
		"user below 0":     {[]string{"--match", "x", "--user", "-1"}, 2, []string{"-1"}},
		"follow a pid":     {[]string{"--pid", pid, "--follow"}, 2, []string{"--match"}},
		"bad expression":   {[]string{"--match", "("}, 2, []string{"missing closing"}},
		"every address":    {[]string{"--pid", pid, "--listen", ":8765"}, 2, []string{"0.0.0.0:8765"}},
		"a name":           {[]string{"--pid", pid, "--listen", "node7:8765"}, 2, []string{"node7"}},
		"no port":          {[]string{"--pid", pid, "--listen", "127.0.0.1"}, 2, []string{"port"}},
		"a large port":     {[]string{"--pid", pid, "--listen", "127.0.0.1:65536"}, 2, []string{"65535"}},
		"a service's name": {[]string{"--pid", pid, "--listen", "127.0.0.1:http"}, 2, []string{"http"}},
		"sent nowhere":     {[]string{"--pid", pid, "--label", "a=b"}, 2, []string{"--pyroscope"}},
		"sent twice":       {[]string{"--pid", pid, "--otlp", "http://x:1", "--parca", "http://x:1"}, 2, []string{"exclude"}},
		"sent to a file":   {[]string{"--pid", pid, "--otlp", "x"}, 2, []string{"http://HOST:PORT"}},
		"sent too often":   {[]string{"--pid", pid, "--otlp", "http://x:1", "--export-every", "10ms"}, 2, []string{"--export-every", "1s"}},
		"sent a password":  {[]string{"--pid", pid, "--otlp", "http://me:secret@x:1"}, 2, []string{"--export-token-file"}},
		"no token to send": {[]string{"--pid", pid, "--otlp", "http://x:1", "--export-token-file", "/nowhere"}, 1, []string{"/nowhere"}},
		"no driver":        {[]string{"--pid", strconv.Itoa(os.Getpid())}, 1, []string{"CUDA driver"}},
		"unknown function": {[]string{"--pid", pid, "--probes", "cuLaunchKernal"}, 2, []string{"cuLaunchKernel"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			args := []string{"serve", "--no-gpu"}
			if test.code == exitError && name != "port in use" {
				args = append(args, "--listen", "127.0.0.1:0")
			}
			r := stageprof(t, append(args, test.args...)...)
			if r.code != test.code || r.stdout != "" {
				t.Errorf("exit code %d, stdout %q; want %d and nothing; stderr %s", r.code, r.stdout, test.code, r.stderr)
			}
			for _, text := range test.want {
				if !strings.Contains(r.stderr, text) {
					t.Errorf("stderr %q, want %q in it", r.stderr, text)
				}
			}
			if strings.Contains(r.stderr, "serving") {
				t.Errorf("it announces an address:\n%s", r.stderr)
			}
		})
	}
}

// With a token, requests need it; health does not.
func TestServeToken(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ := caller(t, "--hold", "-")
	s := startServe(t, "--pid", strconv.Itoa(p.PID), "--token-file", token)
	if status, _ := s.get("/metrics"); status != http.StatusUnauthorized {
		t.Errorf("without the token: %d", status)
	}
	s.url = strings.Replace(s.url, "http://", "http://anyone:s3cret@", 1)
	s.await(up, 1)
	s.interrupt()
}

// Memory stays flat while threads and processes come and go. It takes as long as
// STAGEPROF_LONG says, e.g. 10m, or ten seconds.
func TestServeSoak(t *testing.T) {
	duration := 10 * time.Second
	if long := os.Getenv("STAGEPROF_LONG"); long != "" {
		var err error
		if duration, err = time.ParseDuration(long); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	s := startServe(t, "--match", regexp.QuoteMeta(dir), "--follow", "--probes", "all")
	want, settled := simtest.Counts{}, 0
	for end, round := time.Now().Add(duration), 0; time.Now().Before(end); round++ {
		ready := filepath.Join(dir, fmt.Sprint(round))
		p := simtest.Start(t, simtest.Tester(t, "churn", "--ready", ready, "--markers", simtest.Markers(t), "--threads", "30000", "--at-once", "8"))
		p.WaitLine("up")
		s.await("stageprof_targets_total", float64(round+1))
		release(t, ready)
		s.await(up, 0)
		p.Wait()
		for k, n := range p.Truth().Counts().By(simtest.BySymbol) {
			want.Add(k, n)
		}
		rss := s.resident()
		t.Logf("after %d targets: %d KiB", round+1, rss)
		if round == 2 { // the tables have their size
			settled = rss
		}
		if settled > 0 && rss > settled+settled/2 {
			t.Fatalf("%d KiB of memory after %d targets, %d after three", rss, round+1, settled)
		}
	}
	if diff := simtest.Diff(want, s.counts().By(simtest.BySymbol)); diff != "" {
		t.Errorf("the counters differ from the drivers' truth:\n%s", diff)
	}
	s.interrupt()
}

// resident is the server's resident memory in KiB.
func (s *server) resident() int {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

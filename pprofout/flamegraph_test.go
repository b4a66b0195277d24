package pprofout

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"stageprof/correlate"
)

// In the flame graph of the stock tool, a stage is as wide as its wall time:
// the sum of the stacks below it, which is what the page draws.
func TestToolFlameGraphOfStages(t *testing.T) {
	t.Parallel()
	for name, r := range wallTimes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			widths := flameGraph(t, "-ignore=stage:none", writeStages(t, r))
			for _, s := range correlate.Build(r).Stages {
				if s.Spans == nil {
					continue
				}
				box := "root;stage:" + strings.Join(s.Path.Names, ";stage:")
				if widths[box] != int64(s.Spans.WindowNS()) {
					t.Errorf("%s is %d ns wide, the stage's wall time is %d", box, widths[box], s.Spans.WindowNS())
				}
			}
		})
	}
}

// flameGraph returns the value of each box of the page that pprof's web server
// makes, by the boxes above it.
func flameGraph(t *testing.T, args ...string) map[string]int64 {
	t.Helper()
	page := get(t, serve(t, args...)+"/ui/flamegraph")
	const call = "stackViewer(" // defined before, called last
	at := strings.LastIndex(page, call)
	if at == -1 {
		t.Fatalf("no flame graph on the page:\n%s", page)
	}
	var graph struct {
		Stacks []struct {
			Value   int64
			Sources []int // from the root on
		}
		Sources []struct{ FullName string }
	}
	if err := json.NewDecoder(strings.NewReader(page[at+len(call):])).Decode(&graph); err != nil {
		t.Fatal(err)
	}
	widths := map[string]int64{}
	for _, s := range graph.Stacks {
		var names []string
		for _, source := range s.Sources {
			names = append(names, graph.Sources[source].FullName)
		}
		addToAll(widths, strings.Join(names, ";"), s.Value)
	}
	return widths
}

// serve starts the stock tool's web server, on a port of its own choice, and
// returns its address.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	// The program itself and not `go tool`, which would leave it behind.
	tool, err := exec.Command("go", "tool", "-n", "pprof").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(strings.TrimSpace(string(tool)), append([]string{"-no_browser", "-http=127.0.0.1:"}, args...)...)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(stderr).ReadString('\n')
	address, found := strings.CutPrefix(strings.TrimSpace(line), "Serving web UI on ")
	if !found {
		t.Fatalf("pprof says %q (%v)", line, err)
	}
	waitForServer(t, strings.TrimPrefix(address, "http://"))
	return address
}

// waitForServer waits until the server listens: it says where before it does.
func waitForServer(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			connection.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, response.Status, err)
	}
	return string(body)
}

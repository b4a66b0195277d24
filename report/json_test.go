package report

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

func jsonOf(t *testing.T, r *recording.Recording) map[string]any {
	t.Helper()
	var b bytes.Buffer
	if err := JSON(&b, correlate.Build(r)); err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(&b)
	decoder.UseNumber() // counts do not fit into a float
	var d map[string]any
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if decoder.More() {
		t.Error("there is more than one object")
	}
	return d
}

func small() *recording.Recording {
	b := recordingtest.New()
	r := b.Recording()
	main, worker := b.Thread(4250, "MainThread"), b.Thread(4251, "pt_autograd_0")
	s := b.Spans(main, "step/backward", 10, 20*ms, 0)
	s.PartialCount, s.PartialWallNS = 1, uint64(5*ms)
	c := b.Call(main, "step/backward", b.SymbolIn(1, "cuMemcpyDtoH_v2", 500), 10, ms, 400*us)
	c.Bytes, c.Errors, c.GIL = 4096, 1, recording.GILHeld
	b.Call(worker, "step/backward", b.Symbol("cuLaunchKernel"), 300, 10*us, 9*us).Attribution = recording.AttributionAutograd
	b.Call(main, "", b.Symbol("cuLaunchKernel_ptsz"), 7, 10*us, 9*us)
	b.Debt(main, "step/backward", c.Symbol, "step/forward", 9, 6*ms, 90)
	b.Debt(main, "step/backward", c.Symbol, "", 1, ms, 2)
	b.Debt(main, "step/backward", c.Symbol, "", 2, 3*ms, 0).Kind = recording.DebtIdle
	b.Outside()
	b.Divide()
	b.Unroll(8)
	b.Loss("calls", "map_full", 3, "the map of rows was full")
	b.Loss("spans", "map_full", 1, "the map of rows was full")
	b.Loss("spans", "unmatched_end", 2, "an end marker without a begin")
	r.Seen = &recording.Seen{Calls: 320}
	r.Absent = []string{"cuLaunchKernelEx_ptsz"}
	r.Warnings = []string{"a warning with <brackets> & ampersand"}
	r.GPUNote = "NVML is not installed"
	r.Overhead = recording.Overhead{CallCostNS: 1140.5, AddedNS: 361_538, AgentCPU: 20 * ms, AgentRSS: 40 << 20,
		Attach: 300 * ms, Detach: 80 * ms, Calibration: "median of 20 runs", Calibrated: true, ProbedSites: 3, KernelBytes: 1 << 20}
	return r
}

func TestJSON(t *testing.T) {
	var raw, pretty bytes.Buffer
	if err := JSON(&raw, correlate.Build(small())); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&pretty, raw.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	golden(t, "small.json", pretty.String())
}

// The rows of calls have the promised fields and add up to all calls.
func TestJSONCalls(t *testing.T) {
	d := jsonOf(t, recordingtest.Pipeline())
	fields := []string{"thread", "tid", "stage_path", "symbol", "api", "gil", "attribution", "count", "errors", "wall_ns", "cpu_ns", "bytes"}
	sums := map[string]int64{}
	keys := map[string]bool{}
	for _, c := range d["calls"].([]any) {
		call := c.(map[string]any)
		var key []string
		for _, f := range fields {
			v, ok := call[f]
			if !ok {
				t.Fatalf("a call lacks %q: %v", f, call)
			}
			if n, ok := v.(json.Number); ok && f != "tid" {
				i, err := n.Int64()
				if err != nil {
					t.Fatalf("%s = %v is no integer", f, v)
				}
				sums[f] += i
			} else {
				text, _ := json.Marshal(v)
				key = append(key, string(text))
			}
		}
		if k := strings.Join(key, " "); keys[k] {
			t.Errorf("two rows of %s", k)
		} else {
			keys[k] = true
		}
	}
	all := d["all"].(map[string]any)
	for f, sum := range sums {
		if n, _ := all[f].(json.Number).Int64(); n != sum {
			t.Errorf("%s of all calls is %v, the rows sum to %d", f, n, sum)
		}
	}
	if len(sums) != 5 || sums["count"] != 636_183 {
		t.Errorf("sums = %v", sums)
	}
}

func TestJSONLosses(t *testing.T) {
	got := jsonOf(t, small())["losses"]
	want := map[string]any{
		"map_full/calls": map[string]any{"kind": "calls", "count": json.Number("3"), "help": "the map of rows was full"},
		"map_full/spans": map[string]any{"kind": "spans", "count": json.Number("1"), "help": "the map of rows was full"},
		"unmatched_end":  map[string]any{"kind": "spans", "count": json.Number("2"), "help": "an end marker without a begin"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

// Lists and objects are there when they are empty; what is not known is null.
func TestJSONOfNothing(t *testing.T) {
	d := jsonOf(t, &recording.Recording{})
	for _, key := range []string{"calls", "stages", "threads", "probes", "absent", "warnings"} {
		if list, ok := d[key].([]any); !ok || len(list) != 0 {
			t.Errorf("%s = %v, want []", key, d[key])
		}
	}
	if losses, ok := d["losses"].(map[string]any); !ok || len(losses) != 0 {
		t.Errorf("losses = %v, want {}", d["losses"])
	}
	if gpu, ok := d["gpu"]; !ok || gpu != nil {
		t.Errorf("gpu = %v, want null", gpu)
	}
	balance := d["balance"].(map[string]any)
	if seen, ok := balance["seen"]; !ok || seen != nil {
		t.Errorf("seen = %v, want null", seen)
	}
	if p50, ok := d["all"].(map[string]any)["p50_ns"]; !ok || p50 != nil {
		t.Errorf("p50_ns = %v, want null", p50)
	}
}

func TestCaseC23MissingStageIsNull(t *testing.T) {
	d := jsonOf(t, small())
	for _, s := range d["stages"].([]any) {
		stage := s.(map[string]any)
		spans, ok := stage["spans"]
		share := stage["calls_within"].(map[string]any)["share"]
		switch stage["stage_path"] {
		case "step": // only its child was seen
			if !ok || spans != nil || share != nil {
				t.Errorf("step has spans %v and share %v, want null", spans, share)
			}
		case "step/backward":
			if spans == nil || share == nil {
				t.Errorf("step/backward has spans %v and share %v", spans, share)
			}
		default:
			t.Errorf("stage %v", stage["stage_path"])
		}
	}
	text := textOf(t, small(), TextOptions{})
	if !regexp.MustCompile(`(?m)^step +- +- +- +`).MatchString(text) {
		t.Errorf("the table does not say that step is missing:\n%s", text)
	}
}

// partsByName are the objects whose keys are names of parts.
var partsByName = regexp.MustCompile(`^\.parts_outside$|^\.(stages|threads|stages\[\]\.threads)\[\]\.(parts|parts_within|parts_outside)$|\.iterations\.parts$`)

// Every key of the object is in the package's doc.
func TestJSONIsDocumented(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`[a-z0-9_]+`).FindAllString(string(source), -1)
	var check func(path string, v any)
	check = func(path string, v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				check(path+"[]", e)
			}
		case map[string]any:
			for key, e := range v {
				free := path == ".losses" || strings.HasSuffix(path, ".gil") || strings.HasSuffix(path, ".symbols") || strings.HasSuffix(path, ".apis") ||
					partsByName.MatchString(path)
				if !free && !slices.Contains(words, key) {
					t.Errorf("%s.%s is not documented", path, key)
				}
				check(path+"."+key, e)
			}
		}
	}
	d := jsonOf(t, small())
	delete(d, "gpu") // as in package recording
	check("", d)
	for _, key := range []string{"format", "calls", "stages", "losses", "window", "target", "overhead"} {
		if _, ok := d[key]; !ok {
			t.Errorf("the object lacks %q", key)
		}
	}
}

func TestJSONLargeNumbersAreExact(t *testing.T) {
	b := recordingtest.New()
	c := b.Call(b.Thread(1, "t"), "s", b.Symbol("cuLaunchKernel"), 1, time.Nanosecond, 0)
	c.Bytes = 1<<63 + 1
	call := jsonOf(t, b.Recording())["calls"].([]any)[0].(map[string]any)
	if got := call["bytes"]; got != json.Number("9223372036854775809") {
		t.Errorf("bytes = %v", got)
	}
}

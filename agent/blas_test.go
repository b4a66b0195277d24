package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/correlate"
	"stageprof/sim/simtest"
)

// copyTo copies the simulated cuBLAS to where its name is that of NVIDIA's.
func copyTo(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(simtest.Build(t, "sim/libsimblas.so"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Launches are made for the entry points of cuBLAS that compute, by what the
// libraries are called; for others as well, which are no regions.
func TestRegionsOfCuBLAS(t *testing.T) {
	const rounds = 30
	dir := t.TempDir()
	script, err := filepath.Abs("testdata/blas.py")
	if err != nil {
		t.Fatal(err)
	}
	command := simtest.Command{Path: "python3", Args: []string{
		script, simtest.Driver(t), fmt.Sprint(rounds), copyTo(t, filepath.Join(dir, "libcublas.so.12")), copyTo(t, filepath.Join(dir, "libcublasLt.so.12")),
	}}
	got, p := runTester(t, agent.Config{RegionSets: []string{"cublas"}},
		command.With("LD_LIBRARY_PATH="+filepath.Dir(simtest.Driver(t))))
	expectEqual(t, got, p.Truth().Counts())
	for _, w := range got.Warnings { // what it says of cost and of missing markers is true
		if !strings.Contains(w, "of its time") && !strings.Contains(w, "no marker library") {
			t.Errorf("warning %q", w)
		}
	}
	want := map[string]uint64{
		" | ": rounds, " | cublasSgemm_v2": rounds, " | cublasGemmEx": rounds, " | cublasSgemmStridedBatched": rounds,
		" | cublasLtMatmul": rounds,
	}
	if diff := cmp.Diff(want, callsIn(got)); diff != "" {
		t.Errorf("launches by region (-want +got):\n%s", diff)
	}
	by, ok := correlate.FindDimension("region")
	if !ok {
		t.Fatal("calls can't be grouped by region")
	}
	groups := correlate.GroupCalls([]*correlate.Ledger{correlate.Build(got)}, correlate.GroupOptions{By: []correlate.Dimension{by}})
	counted := map[string]uint64{}
	for _, g := range groups.List {
		counted[g.Key[0]] = g.Count
	}
	if diff := cmp.Diff(map[string]uint64{
		"none": rounds, "cublasSgemm_v2": rounds, "cublasGemmEx": rounds, "cublasSgemmStridedBatched": rounds, "cublasLtMatmul": rounds,
	}, counted); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

package sim_test

import (
	"os/exec"
	"strings"
	"testing"

	"stageprof/sim/simtest"
)

// TestSelfcheck runs the C program that checks the simulated driver from inside.
func TestSelfcheck(t *testing.T) {
	command := simtest.Tester(t, "selfcheck")
	list, err := exec.Command(command.Path, "--list").Output()
	if err != nil {
		t.Fatalf("listing the checks: %v", err)
	}
	names := strings.Fields(string(list))
	if len(names) == 0 {
		t.Fatal("no checks")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			command := simtest.Tester(t, "selfcheck", name).With("SIMCUDA_DEVICES=2", "SIMCUDA_MEMORY=0x4000000")
			simtest.Start(t, command).Wait()
		})
	}
}

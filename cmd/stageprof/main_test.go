package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"stageprof/agent/calibrate"
	"stageprof/agent/keeper"
)

// asCommand makes the test binary behave as stageprof itself, so that the
// tests run the command as people do: as a process.
const asCommand = "STAGEPROF_TEST_COMMAND"

func TestMain(m *testing.M) {
	if calibrate.Target() || keeper.Run() {
		return
	}
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// command prepares stageprof with arguments.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Dir = t.TempDir()
	return cmd
}

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// stageprof runs it to its end.
func stageprof(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, command(t, args...))
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

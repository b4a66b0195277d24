package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"stageprof/agent"
	"stageprof/report"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // the command was understood and did not work
	exitUsage = 2 // the command line makes no sense
	exitMet   = 3 // a condition of diff --fail-if is met
)

// usageError is a fault of the command line.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// errConditionMet says that what --fail-if asks for has happened.
var errConditionMet = errors.New("a condition of --fail-if is met")

// printableLines makes a message harmless that may quote texts of the target's.
// Several errors are on a line each.
func printableLines(message string) string {
	lines := strings.Split(message, "\n")
	for i, line := range lines {
		lines[i] = report.Printable(line)
	}
	return strings.Join(lines, "\n")
}

// run executes one command line, tells its error, and gives the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCmd()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "stageprof: %s\n", printableLines(err.Error()))
	if usage := new(usageError); errors.As(err, &usage) || errors.Is(err, agent.ErrUsage) {
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
		return exitUsage
	}
	if errors.Is(err, errConditionMet) {
		return exitMet
	}
	return exitError
}

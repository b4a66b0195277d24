package main

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"stageprof/agent"
	"stageprof/agent/probe"
)

// targetConfig is what the command line of a command that attaches to a process
// says about that.
type targetConfig struct {
	agent.Config

	mechanism string
	stacks    string
	syncDebt  bool
}

// addFlags adds the flags of all commands that attach to a process; which Python
// stacks are read unless one says it is each one's own.
func (c *targetConfig) addFlags(f *pflag.FlagSet, stacks agent.PythonStacks) {
	f.IntVarP(&c.PID, "pid", "p", 0, "process to attach to")
	f.StringVar(&c.Probes, "probes", "default", "which driver functions to time")
	f.StringVar(&c.mechanism, "mechanism", string(probe.Auto), "how to attach: "+list(probe.Mechanisms()))
	f.StringVar(&c.StageMatch, "stage-match", "", "only stages whose name has a match of this `regexp`")
	f.StringSliceVar(&c.StagesFrom, "stages-from", []string{agent.SourceMarkers}, "where stages come from: "+strings.Join(agent.Sources(), ", ")+", python:REGEXP, function:LIB:SYMBOL, usdt:LIB:PROVIDER:BEGIN,END")
	f.StringVar(&c.stacks, "python-stacks", string(stacks), "of which calls to read the Python stack: "+list(agent.PythonStacksChoices()))
	f.BoolVar(&c.syncDebt, "sync-debt", true, "estimate whose work each wait for the device was for")
	f.BoolVar(&c.Wait, "wait", false, "wait for the process to load the CUDA driver")
}

// complete fills in what the flags say in other words than the Config.
func (c *targetConfig) complete() {
	c.Mechanism = probe.Mechanism(c.mechanism)
	c.StagesFrom = joinSources(c.StagesFrom)
	c.PythonStacks = agent.PythonStacks(c.stacks)
	c.NoSyncDebt = !c.syncDebt
}

// Validate completes the Config, and checks everything that can be checked
// without a target.
func (c *targetConfig) Validate() error {
	c.complete()
	if c.PID == 0 {
		return &usageError{errors.New("which process? give its id with --pid")}
	}
	return c.Config.Validate()
}

// joinSources undoes that flags are split at every comma, also at the one between
// the two probes of a pair and at those in a regular expression.
func joinSources(sources []string) []string {
	var joined []string
	for _, source := range sources {
		last := len(joined) - 1
		if last >= 0 && goesOn(joined[last], source) {
			joined[last] += "," + source
			continue
		}
		joined = append(joined, source)
	}
	return joined
}

// goesOn tells whether a source has a part behind a comma.
func goesOn(source, part string) bool {
	if strings.HasPrefix(source, agent.SourcePython+":") {
		return !agent.IsSource(part)
	}
	return strings.HasPrefix(source, agent.SourceUSDT+":") && !strings.Contains(source, ",")
}

package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/correlate"
)

// The formats in which a command prints its result.
const (
	formatText     = "text"
	formatJSON     = "json"
	formatCSV      = "csv"
	formatMarkdown = "markdown"
)

// recordConfig is everything that the command line of record says.
type recordConfig struct {
	Agent targetConfig

	Output      string // the profile
	Stages      string // the profile of the stages' wall time, "" for none
	Spans       string // the single spans, "" for none
	Save        string // the Recording, "" for none
	Children    bool   // the process's descendants, too
	ReadyFile   string // created when every probe is live, "" for none
	Format      string // of the table
	Full        bool   // every table
	StageFrames bool
	NoGPU       bool
	Quiet       bool
	Verbose     bool
}

const fullHelp = "print all tables, also those of single spans, functions and threads"

func (c *recordConfig) addFlags(f *pflag.FlagSet) {
	c.Agent.addFlags(f, agent.PythonStacksSampled)
	f.VarP((*durationValue)(&c.Agent.Duration), "duration", "d", "how long to record, 0: until interrupted")
	f.Var((*budgetValue)(&c.Agent.Budget), "budget", "record in windows, so that a process pays no more than this `share` of one CPU (1%)")
	f.StringVarP(&c.Output, "output", "o", "stageprof.pb.gz", "write the profile to this `file`")
	f.StringVar(&c.Stages, "stages-out", "", "also write a profile of the stages' whole wall time to this `file`")
	f.StringVar(&c.Spans, "spans", "", "also write each span as a line of JSON to this `file`")
	f.StringVar(&c.Save, "save", "", "also save the recording itself to this `file`")
	f.Var((*timelineValue)(&c.Agent.Timeline), "timeline", "also save the single events of the recording's last part, as long as this, for \"stageprof timeline\"")
	f.Lookup("timeline").NoOptDefVal = agent.DefaultTimeline.String()
	f.StringVar(&c.Format, "format", formatText, "table on stdout: text or json")
	f.StringSliceVar(&c.Agent.RegionSets, "regions", nil, "functions to show as callers of driver calls: "+strings.Join(agent.RegionSets(), ", "))
	f.StringArrayVar(&c.Agent.Regions, "region", nil, "also show these functions, `LIB:SYMBOL`, as callers; may be repeated")
	f.BoolVar(&c.Agent.Allocations, "allocations", false, "count what PyTorch's CUDA allocator gives to tensors, by stage")
	f.StringVar(&c.ReadyFile, "ready-file", "", "create this `file` when every probe is live")
	f.BoolVar(&c.Children, "children", false, "record the process's descendants, too, as far as they use CUDA")
	f.BoolVar(&c.StageFrames, "stage-frames", false, "put stages into the stacks, for viewers without -tagroot")
	f.BoolVar(&c.NoGPU, "no-gpu", false, "do not read NVML")
	f.BoolVar(&c.Full, "full", false, fullHelp)
	f.BoolVarP(&c.Quiet, "quiet", "q", false, "print warnings and errors only")
	f.BoolVarP(&c.Verbose, "verbose", "v", false, "say what is being done")
}

// completeFlags teaches the shell the values of flags.
func completeFlags(cmd *cobra.Command, formats ...string) {
	if len(formats) == 0 {
		formats = []string{formatText, formatJSON}
	}
	complete := func(name string, values cobra.CompletionFunc) {
		if cmd.Flags().Lookup(name) != nil {
			// It fails only for a flag that does not exist.
			_ = cmd.RegisterFlagCompletionFunc(name, values)
		}
	}
	for name, choices := range map[string][]string{
		"format":        formats,
		"sort":          correlate.GroupColumnNames(),
		"mechanism":     words(probe.Mechanisms()),
		"python-stacks": words(agent.PythonStacksChoices()),
	} {
		complete(name, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
	}
	for name, choices := range map[string][]string{
		"by":          dimensionNames(),
		"stages-from": agent.Sources(),
		"regions":     agent.RegionSets(),
		"probes":      append([]string{"default", "all"}, words(probe.Groups())...),
	} {
		complete(name, listCompletions(choices))
	}
}

// listCompletions are the values of a flag that takes a list: for the shell, what
// stands before the last comma is part of the word.
func listCompletions(choices []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, word string) (words []cobra.Completion, _ cobra.ShellCompDirective) {
		listed := word[:strings.LastIndex(word, ",")+1]
		for _, choice := range choices {
			if !slices.Contains(strings.Split(listed, ","), choice) {
				words = append(words, listed+choice)
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// Validate checks everything that can be checked without a target. Its errors
// are faults of the command line.
func (c *recordConfig) Validate() error {
	if err := c.Agent.Validate(); err != nil {
		return err
	}
	switch {
	case c.Output == "":
		return &usageError{errors.New("the output has no name")}
	case c.Agent.Timeline > 0 && c.Save == "":
		return &usageError{errors.New("--timeline needs --save: the events are a part of the saved recording")}
	case c.Children && c.Save != "" && !perProcess(c.Save):
		return &usageError{fmt.Errorf("--save %q with --children needs a file of each process: put {rank} or {pid} into its name", c.Save)}
	case c.Quiet && c.Verbose:
		return &usageError{errors.New("--quiet and --verbose exclude each other")}
	}
	if err := validateFormat(c.Format); err != nil {
		return err
	}
	return c.validateFiles()
}

func (c *recordConfig) validateFiles() error {
	return differentFiles([]namedFile{
		{"--output", c.Output}, {"--stages-out", c.Stages}, {"--spans", c.Spans},
		{"--save", c.Save}, {"--ready-file", c.ReadyFile},
	})
}

// namedFile is a file and the flag that names it.
type namedFile struct{ flag, path string }

// differentFiles refuses two outputs in one file.
func differentFiles(files []namedFile) error {
	named := map[string]string{}
	for _, f := range files {
		if f.path == "" {
			continue
		}
		path := place(f.path)
		if other, ok := named[path]; ok {
			return &usageError{fmt.Errorf("%s and %s name the same file %q", other, f.flag, f.path)}
		}
		named[path] = f.flag
	}
	return nil
}

// durationValue is a flag of a duration. One that is too short to be told from
// 0 is refused, since 0 means something else.
type durationValue time.Duration

func (v *durationValue) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d == 0 && strings.ContainsAny(text, "123456789") {
		return fmt.Errorf("%q is less than a nanosecond", text)
	}
	*v = durationValue(d)
	return nil
}

func (v *durationValue) String() string { return time.Duration(*v).String() }
func (v *durationValue) Type() string   { return "duration" }

// timelineValue is the flag of a timeline's length. There is none unless it is
// given, so no length stands for that.
type timelineValue time.Duration

func (v *timelineValue) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d <= 0 {
		return fmt.Errorf("%q is not positive", text)
	}
	*v = timelineValue(d)
	return nil
}

func (v *timelineValue) String() string {
	if *v == 0 {
		return ""
	}
	return time.Duration(*v).String()
}

func (v *timelineValue) Type() string { return "window" }

// budgetValue is the flag of a share of one CPU.
type budgetValue float64

func (v *budgetValue) Set(text string) error {
	number, ok := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil {
		return fmt.Errorf("%q is no percentage, such as 1%%", text)
	}
	if !(percent > 0 && percent <= 100) {
		return fmt.Errorf("%q is not between 0%% and 100%%", text)
	}
	*v = budgetValue(percent / 100)
	return nil
}

func (v *budgetValue) String() string {
	if *v == 0 {
		return ""
	}
	return strconv.FormatFloat(100*float64(*v), 'g', -1, 64) + "%"
}

func (v *budgetValue) Type() string { return "share" }

func validateFormat(format string) error {
	if !slices.Contains([]string{formatText, formatJSON}, format) {
		return &usageError{fmt.Errorf("format %q is neither %q nor %q", format, formatText, formatJSON)}
	}
	return nil
}

// tableFormats are those of commands that print one table.
var tableFormats = []string{formatText, formatJSON, formatCSV, formatMarkdown}

func validateTableFormat(format string) error {
	if !slices.Contains(tableFormats, format) {
		return &usageError{fmt.Errorf("format %q is none of %s", format, list(tableFormats))}
	}
	return nil
}

// skipFlags choose iterations to leave out.
type skipFlags struct{ correlate.Skip }

// addFlags adds them; where says, in the help, which numbers they are about.
func (s *skipFlags) addFlags(f *pflag.FlagSet, where string) {
	f.IntVar(&s.First, "skip", 0, where+"leave out the first `N` iterations of each stage on each thread")
	f.BoolVar(&s.Warmup, "skip-warmup", false, where+"leave out the warm-up of each stage on each thread, as far as one is found")
}

func (s *skipFlags) Validate() error {
	if s.First < 0 {
		return &usageError{fmt.Errorf("--skip %d is negative", s.First)}
	}
	return nil
}

func words[T ~string](values []T) []string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return words
}

// list writes words for help.
func list[T ~string](values []T) string { return strings.Join(words(values), ", ") }

package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "stageprof",
		Short: "Attribute a running process's CUDA driver time to its stages",
		Long: `stageprof attaches to a running training process with eBPF, without stopping
or changing it, times every CUDA driver call that it makes, joins the calls with
the stages that the training loop marks, and writes pprof profiles.

Exit status: 0 done, 1 it did not work, 2 the command line is wrong; of diff also 3:
a condition of --fail-if is met.`,
		Example: `  sudo stageprof record --pid 4242 --duration 30s
  go tool pprof -tagroot=stage,gil stageprof.pb.gz`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
		DisableAutoGenTag:          true, // of manual pages: it has the day on which they were made

		SilenceErrors: true, // run tells them
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newRecordCmd(), newReportCmd(), newDiffCmd(), newHTMLCmd(), newTimelineCmd(), newExportCmd(), newTopCmd(), newServeCmd(), newMarkCmd(), newDoctorCmd(), newManCmd(), newVersionCmd())
	return root
}

// noCommand refuses a command that does not exist, and names those that are
// spelled much like it.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("there is no command %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %q?", err, near[0])
	}
	return &usageError{err}
}

// noArguments refuses arguments that are not flags.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}

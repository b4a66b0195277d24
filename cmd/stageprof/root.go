package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{withoutBudget(cmd, plainFlagError(err))} })
	root.AddCommand(newRecordCmd(), newReportCmd(), newDiffCmd(), newHTMLCmd(), newTimelineCmd(), newExportCmd(), newTopCmd(), newServeCmd(), newMarkCmd(), newDoctorCmd(), newManCmd(), newVersionCmd())
	strictHelp(root)
	strictCompletion(root)
	root.Version = versionString()
	root.SetVersionTemplate(versionLine())
	root.Flags().Bool("version", false, "print the version") // without the -v that elsewhere is --verbose
	return root
}

// strictHelp makes help refuse a command that does not exist; Cobra's own shows
// the help of the command above it.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"}) // it is there
	help.Args = func(_ *cobra.Command, args []string) error {
		found, rest, err := root.Find(args)
		if err != nil { // of a command that takes no arguments
			return &usageError{err}
		}
		return noCommand(found, rest)
	}
}

// strictCompletion makes completion refuse a shell that it does not know.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"}) // it is there
	var shells []string
	for _, shell := range completion.Commands() {
		shell.Args = noArguments
		shells = append(shells, shell.Name())
	}
	completion.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return &usageError{fmt.Errorf("there is no completion for %q, only for %s", args[0], list(shells))}
	}
	completion.Example = `  source <(stageprof completion bash)
  stageprof completion zsh > "${fpath[1]}/_stageprof"
  stageprof completion fish > ~/.config/fish/completions/stageprof.fish`
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// withoutBudget says why commands that could have a budget have none.
func withoutBudget(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	live := cmd.Name() == "top" || cmd.Name() == "serve"
	if !live || !errors.As(err, &unknown) || unknown.GetSpecifiedName() != "budget" {
		return err
	}
	return fmt.Errorf("--budget is for record: the counters that %s shows would end with each of its windows", cmd.Name())
}

// plainFlagError says in words why a value is none, where the flags' package
// quotes the function that could not read it.
func plainFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return err
	}
	flag, why := invalid.GetFlag(), "is not a number"
	switch {
	case errors.Is(number, strconv.ErrRange):
		why = "is out of range"
	case flag.Value.Type() == "bool":
		why = "is neither true nor false"
	case strings.HasPrefix(flag.Value.Type(), "int"), strings.HasPrefix(flag.Value.Type(), "uint"):
		why = "is not a whole number"
	}
	return fmt.Errorf("--%s: %q %s", flag.Name, invalid.GetValue(), why)
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

// noArguments refuses arguments that are not flags. One behind a flag that may
// stand alone was meant as its value.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unexpected argument %q", args[0])
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" && f.Value.Type() != "bool" {
			err = fmt.Errorf("%w; a value of --%s is joined to it: --%s=%s", err, f.Name, f.Name, args[0])
		}
	})
	return &usageError{err}
}

package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/agent/probe"
)

// doctorConfig is everything that the command line of doctor says.
type doctorConfig struct {
	PID     int // 0: the machine only
	Probes  string
	Regions []string // functions to look for, as LIB:SYMBOL
	Format  string
}

func (c *doctorConfig) addFlags(f *pflag.FlagSet) {
	f.IntVarP(&c.PID, "pid", "p", 0, "process to look at, without attaching to it")
	f.StringVar(&c.Probes, "probes", "default", "driver functions, as for record")
	f.StringArrayVar(&c.Regions, "region", nil, "also look for these functions, `LIB:SYMBOL`; may be repeated")
	f.StringVar(&c.Format, "format", formatText, "text or json")
}

// Validate checks everything that can be checked without a target.
func (c *doctorConfig) Validate() error {
	if c.PID < 0 {
		return &usageError{fmt.Errorf("process id %d is negative", c.PID)}
	}
	if c.PID == 0 && len(c.Regions) > 0 {
		return &usageError{errors.New("--region looks for functions in a process: give its id with --pid")}
	}
	return validateFormat(c.Format)
}

func newDoctorCmd() *cobra.Command {
	var c doctorConfig
	cmd := &cobra.Command{
		Use:   "doctor [--pid PID]",
		Short: "Say whether record can work here, and what it would attach where",
		Long: `Doctor tries out what recording needs of this kernel and of the caller's
privileges, and looks for NVML. With --pid it also looks at a process: its Python
and how its GIL can be read, the CUDA drivers and marker libraries that it has
mapped, and every address that record would probe, with the cost of a call there
as measured now on this machine. It attaches nothing to the process. It also lists
the functions that record's --regions would follow there, and with --region any
others: how many exits they have and what an execution costs, or why they can't be
followed.

Exit status: 0 record can work, 1 it can't, 2 the command line is wrong.`,
		Example: `  sudo stageprof doctor
  sudo stageprof doctor --pid 4242
  sudo stageprof doctor --pid 4242 --probes all --format json
  sudo stageprof doctor --pid 4242 --region 'libtrainer.so:*train_step*'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			confine(newConsole(cmd.ErrOrStderr()).logger(slog.LevelWarn), toAttach(probe.Auto))
			d, err := diagnose(cmd.Context(), &c)
			if err != nil {
				return err
			}
			print := d.writeText
			if c.Format == formatJSON {
				print = d.writeJSON
			}
			if err := print(cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("printing the diagnosis: %w", err)
			}
			if !d.Works {
				return errors.New("record can't work: " + d.Problems[0])
			}
			return nil
		},
	}
	c.addFlags(cmd.Flags())
	completeFlags(cmd)
	return cmd
}

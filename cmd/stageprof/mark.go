package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/agent/mark"
)

// markConfig is everything that the command line of mark says.
type markConfig struct {
	Mark   mark.Config
	Format string
}

func (c *markConfig) addFlags(f *pflag.FlagSet) {
	f.IntVarP(&c.Mark.PID, "pid", "p", 0, "process whose functions to mark")
	f.StringArrayVar(&c.Mark.Functions, "function", nil, "mark this function, `MODULE:QUALNAME`; may be repeated")
	f.BoolVar(&c.Mark.Undo, "undo", false, "undo it, for all marked functions or for those of --function")
	f.DurationVar(&c.Mark.Timeout, "timeout", mark.DefaultTimeout, "withdraw the request if the main thread does not come to it in this time")
	f.StringVar(&c.Format, "format", formatText, "text or json")
}

// Validate checks everything that can be checked without a target. Its errors
// are faults of the command line.
func (c *markConfig) Validate() error {
	if err := validateFormat(c.Format); err != nil {
		return err
	}
	if err := c.Mark.Validate(); err != nil {
		return &usageError{err}
	}
	return nil
}

func newMarkCmd() *cobra.Command {
	var c markConfig
	cmd := &cobra.Command{
		Use:   "mark --pid PID (--function MODULE:QUALNAME... | --undo)",
		Short: "Make stages of functions of a running Python program, without a restart",
		Long: `Mark has the interpreter of a running program wrap functions in stages, as the
marker package's decorator would have done in its source. It is the one command
that changes the target. It needs CPython 3.14, whose own support for debuggers
(PEP 768) it uses, and the marker package where the program can import it.
Elsewhere it says why it can't, and changes nothing.

MODULE is one that the program has imported, such as __main__; QUALNAME leads
through classes: train:Trainer.step. The stage has the qualified name. Names in
other modules that stand for the very same function are changed with it. A call
that is running goes on unmarked.

The main thread does it, between two of its instructions. While it is inside a
native call, such as a long synchronisation, it is waited for; after --timeout,
and by ^C, the request is withdrawn, and nothing was changed.

--undo puts back what mark changed, where nobody has changed it since.`,
		Example: `  sudo stageprof mark --pid 4242 --function __main__:train_step --function model:Net.forward
  sudo stageprof record --pid 4242 --duration 30s
  sudo stageprof mark --pid 4242 --undo`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			return c.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	c.addFlags(cmd.Flags())
	completeFlags(cmd)
	return cmd
}

func (c *markConfig) run(ctx context.Context, stdout io.Writer) error {
	outcomes, err := mark.Run(ctx, c.Mark)
	if errors.Is(err, mark.ErrTimeout) {
		err = fmt.Errorf("%w (%s): it is asleep or inside a native call; the request was withdrawn and nothing "+
			"was changed; try again, or with a longer --timeout", err, c.Mark.Timeout)
	}
	if outcomes == nil && err != nil {
		return err
	}
	print := writeOutcomes
	if c.Format == formatJSON {
		print = writeOutcomesJSON
	}
	if err := errors.Join(err, print(stdout, outcomes)); err != nil {
		return err
	}
	return refusedOutcomes(outcomes)
}

func writeOutcomes(w io.Writer, outcomes []mark.Outcome) error {
	if len(outcomes) == 0 {
		_, err := fmt.Fprintln(w, "no function is marked")
		return err
	}
	for _, o := range outcomes {
		if _, err := fmt.Fprintf(w, "%s: %s%s\n", o.Function, o.Status, outcomeDetail(o)); err != nil {
			return err
		}
	}
	return nil
}

func outcomeDetail(o mark.Outcome) string {
	detail := ""
	if o.Reason != "" {
		detail = ": " + o.Reason
	}
	if o.References > 0 {
		detail += fmt.Sprintf(", with %d other names of it", o.References)
	}
	if o.Kept > 0 {
		detail += fmt.Sprintf("; %d names mean something else by now and were left alone", o.Kept)
	}
	return detail
}

func writeOutcomesJSON(w io.Writer, outcomes []mark.Outcome) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Functions []mark.Outcome `json:"functions"`
	}{append([]mark.Outcome{}, outcomes...)})
}

// refusedOutcomes is an error if any function was refused.
func refusedOutcomes(outcomes []mark.Outcome) error {
	refused := 0
	for _, o := range outcomes {
		if o.Status == mark.Refused {
			refused++
		}
	}
	if refused == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d functions could not be marked", refused, len(outcomes))
}

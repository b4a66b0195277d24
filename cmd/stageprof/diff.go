package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/correlate"
	"stageprof/report"
)

// diffConfig is everything that the command line of diff says.
type diffConfig struct {
	Before, After []string // files
	Format        string
	Full          bool
	Alpha         float64
	Skip          skipFlags
	FailIf        []string

	conditions []*correlate.Condition
}

func (c *diffConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Format, "format", formatText, "output: "+list(tableFormats))
	f.BoolVar(&c.Full, "full", false, "print every part, function and number of calls of every stage")
	f.Float64Var(&c.Alpha, "alpha", 0.05, "a difference is significant if chance makes it less often than this")
	f.StringArrayVar(&c.FailIf, "fail-if", nil, "exit with 3 if this `condition` is met; may be repeated")
	c.Skip.addFlags(f, "")
}

// takeFiles sorts the arguments into the two sides. dash is where "--" stood
// among them, -1 if it did not.
func (c *diffConfig) takeFiles(args []string, dash int) error {
	if flag := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--") }); flag >= 0 {
		return &usageError{fmt.Errorf(`%q comes after "--", where only files are: flags go before it`, args[flag])}
	}
	switch {
	case dash == 0 || (dash > 0 && dash == len(args)):
		return &usageError{errors.New(`there must be recordings on both sides of "--"`)}
	case dash > 0:
		c.Before, c.After = args[:dash], args[dash:]
	case len(args) == 2:
		c.Before, c.After = args[:1], args[1:]
	case len(args) > 2:
		return &usageError{fmt.Errorf(`which of the %d recordings are the new ones? put "--" before them`, len(args))}
	default:
		return &usageError{errors.New("which recordings? give one from before and one from after, as record --save wrote them")}
	}
	return nil
}

func (c *diffConfig) Validate() error {
	if err := validateTableFormat(c.Format); err != nil {
		return err
	}
	if err := c.Skip.Validate(); err != nil {
		return err
	}
	if err := validateAlpha(c.Alpha); err != nil {
		return err
	}
	for _, text := range c.FailIf {
		condition, err := correlate.ParseCondition(text)
		if err != nil {
			return &usageError{fmt.Errorf("--fail-if %q: %w", text, err)}
		}
		c.conditions = append(c.conditions, condition)
	}
	return nil
}

func validateAlpha(alpha float64) error {
	if !(alpha > 0 && alpha < 1) {
		return &usageError{fmt.Errorf("--alpha %v is not between 0 and 1", alpha)}
	}
	return nil
}

func newDiffCmd() *cobra.Command {
	var c diffConfig
	cmd := &cobra.Command{
		Use:   "diff BASE NEW | diff BASE... -- NEW...",
		Short: "Compare saved recordings, stage by stage and iteration by iteration",
		Long: `Diff compares recordings that "record --save" wrote, on any machine and without
privileges: per stage and iteration, what the wall time was and is, what it
consists of, how much longer or shorter it is and whether chance alone could make
that difference. What moved the wall clock most comes first. An iteration is one
complete span of a stage; those that the edge of a recording cut are left out.

With several recordings of each side, before and after "--", a difference must
also be larger than those between recordings of one side.

--fail-if takes a condition: [stage=STAGE] METRIC >|< LIMIT [p=LEVEL]. It is met
when the change of the metric per iteration is beyond the limit and significant,
at --alpha or at the given level; "p=any" does not ask for significance. Without
a stage (or with stage=*) it is about each stage that ran on both sides. STAGE is
a stage path, in double quotes if there are blanks in it. METRIC is wall, cuda,
calls, "cuda: FUNCTION", "calls: FUNCTION", blocked, or a part of the wall time:
"cuda cpu", "cuda blocked", "gil wait", runnable, "blocked: futex", running, ...
LIMIT is a change relative to before (5%), a time (-200us), or a number of calls.

Exit status: 0 compared, 1 it did not work, 2 the command line is wrong,
3 a condition is met.`,
		Example: `  stageprof diff before.rec after.rec
  stageprof diff before*.rec -- after*.rec
  stageprof diff before.rec after.rec --skip-warmup --format markdown
  stageprof diff before.rec after.rec --fail-if 'stage=target_forward wall > 5%'
  stageprof diff before.rec after.rec --fail-if 'gil wait > 1ms' --fail-if 'stage=copy_to_cpu calls: cuStreamSynchronize > 0'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.takeFiles(args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			if err := c.Validate(); err != nil {
				return err
			}
			return c.run(cmd.OutOrStdout(), newConsole(cmd.ErrOrStderr()).logger(slog.LevelWarn))
		},
	}
	c.addFlags(cmd.Flags())
	completeFlags(cmd, tableFormats...)
	return cmd
}

func (c *diffConfig) run(stdout io.Writer, log *slog.Logger) error {
	before, err := readRuns(c.Before)
	if err != nil {
		return err
	}
	after, err := readRuns(c.After)
	if err != nil {
		return err
	}
	comparison, err := correlate.Compare(before, after, correlate.CompareOptions{Skip: c.Skip.Skip, Alpha: c.Alpha})
	if err != nil {
		return err
	}
	verdicts, err := c.check(comparison)
	if err != nil {
		return err
	}
	if c.Format == formatCSV || c.Format == formatMarkdown { // which have no place for them
		for _, w := range comparison.Warnings {
			log.Warn(w)
		}
	}
	return errors.Join(c.print(stdout, comparison, verdicts), failure(verdicts))
}

func readRuns(paths []string) ([]correlate.Run, error) {
	var runs []correlate.Run
	for _, path := range paths {
		ledger, err := readLedger(path, correlate.Skip{})
		if err != nil {
			return nil, err
		}
		runs = append(runs, correlate.Run{Name: path, Ledger: ledger})
	}
	return runs, nil
}

func (c *diffConfig) check(comparison *correlate.Comparison) ([]correlate.Verdict, error) {
	var verdicts []correlate.Verdict
	for _, condition := range c.conditions {
		v, err := condition.Check(comparison)
		if err != nil {
			return nil, err
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, nil
}

func (c *diffConfig) print(stdout io.Writer, comparison *correlate.Comparison, verdicts []correlate.Verdict) error {
	options := report.CompareOptions{Width: terminalWidth(stdout), Full: c.Full, Verdicts: verdicts}
	switch c.Format {
	case formatJSON:
		return report.CompareJSON(stdout, comparison, options)
	case formatCSV:
		return report.CompareCSV(stdout, comparison)
	case formatMarkdown:
		return report.CompareMarkdown(stdout, comparison, c.Full)
	default:
		return report.CompareText(stdout, comparison, options)
	}
}

// failure is the error of conditions that are met, nil if none is.
func failure(verdicts []correlate.Verdict) error {
	var met []string
	for _, v := range verdicts {
		for i := range v.Met {
			met = append(met, fmt.Sprintf("%q: %s", v.Text, report.MetText(&v.Met[i])))
		}
	}
	if met == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", errConditionMet, strings.Join(met, "; "))
}

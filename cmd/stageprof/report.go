package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/correlate"
	"stageprof/pprofout"
	"stageprof/recording"
	"stageprof/report"
)

// reportConfig is everything that the command line of report says.
type reportConfig struct {
	Files       profileFiles
	Format      string
	Full        bool
	Skip        skipFlags
	StageFrames bool
}

// profileFiles are the files that a Recording is turned into, "" for none.
type profileFiles struct {
	Output string // the profile
	Stages string // the profile of the stages' wall time
	Spans  string // the single spans
}

func (c *reportConfig) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&c.Files.Output, "output", "o", "", "write the profile to this `file`")
	f.StringVar(&c.Files.Stages, "stages-out", "", "write a profile of the stages' whole wall time to this `file`")
	f.StringVar(&c.Files.Spans, "spans", "", "write each span as a line of JSON to this `file`")
	f.StringVar(&c.Format, "format", formatText, "table on stdout: text or json")
	f.BoolVar(&c.Full, "full", false, fullHelp)
	c.Skip.addFlags(f)
	f.BoolVar(&c.StageFrames, "stage-frames", false, "put stages into the stacks, for viewers without -tagroot")
}

func (c *reportConfig) Validate() error {
	if err := validateFormat(c.Format); err != nil {
		return err
	}
	if err := c.Skip.Validate(); err != nil {
		return err
	}
	return differentFiles([]namedFile{
		{"--output", c.Files.Output}, {"--stages-out", c.Files.Stages}, {"--spans", c.Files.Spans},
	})
}

func newReportCmd() *cobra.Command {
	var c reportConfig
	cmd := &cobra.Command{
		Use:   "report FILE",
		Short: "Print the table of a saved recording, or make its profiles again",
		Long: `Report reads what "record --save" saved, on any machine, and prints the same
table and writes the same profiles as record did. It needs no privileges.`,
		Example: `  sudo stageprof record --pid 4242 -d 30s --save run.rec
  stageprof report run.rec
  stageprof report run.rec --format json --stages-out stages.pb.gz --spans spans.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("which recording? give one file that record --save wrote")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			return c.run(args[0], cmd.OutOrStdout())
		},
	}
	c.addFlags(cmd.Flags())
	completeFlags(cmd)
	return cmd
}

func (c *reportConfig) run(path string, stdout io.Writer) error {
	ledger, err := readLedger(path, c.Skip.Skip)
	if err != nil {
		return err
	}
	var files outputs
	defer files.discard() // what was not committed
	writers, err := openWriters(&files, c.Files, pprofout.Options{StageFrames: c.StageFrames})
	if err != nil {
		return err
	}
	if err := writeAll(writers, &files, ledger); err != nil {
		return err
	}
	return printTable(stdout, ledger, c.Format, c.Full)
}

func readLedger(path string, skip correlate.Skip) (*correlate.Ledger, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the recording: %w", err)
	}
	defer file.Close()
	rec, err := recording.Read(file)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", path, err)
	}
	return correlate.BuildSkipping(rec, skip), nil
}

// fileWriter fills one of the files.
type fileWriter struct {
	path  string
	file  io.Writer
	write func(io.Writer, *correlate.Ledger) error
}

// openWriters finds out that a file can't be written before any work is done.
// Further files can be asked for beside those of a profile.
func openWriters(files *outputs, names profileFiles, options pprofout.Options, more ...fileWriter) ([]fileWriter, error) {
	var writers []fileWriter
	for _, f := range append([]fileWriter{
		{path: names.Output, write: func(w io.Writer, l *correlate.Ledger) error { return pprofout.Write(w, l, options) }},
		{path: names.Stages, write: func(w io.Writer, l *correlate.Ledger) error {
			return pprofout.WriteStages(w, l, pprofout.Options{})
		}},
		{path: names.Spans, write: report.Spans},
	}, more...) {
		if f.path == "" {
			continue
		}
		var err error
		if f.file, err = files.open(f.path); err != nil {
			return nil, err
		}
		writers = append(writers, f)
	}
	return writers, nil
}

// writeAll fills the files and gives all of them their names.
func writeAll(writers []fileWriter, files *outputs, ledger *correlate.Ledger) error {
	for _, f := range writers {
		if err := f.write(f.file, ledger); err != nil {
			return fmt.Errorf("writing %q: %w", f.path, err)
		}
	}
	return files.commit()
}

func printTable(w io.Writer, ledger *correlate.Ledger, format string, full bool) error {
	if format == formatJSON {
		return report.JSON(w, ledger)
	}
	return report.Text(w, ledger, report.TextOptions{Width: terminalWidth(w), Full: full})
}

package main

import (
	"cmp"
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
	By          groupFlags
	Trend       bool
	Histogram   string // a function, "" for none
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
	f.StringVar(&c.Format, "format", formatText, "output: "+list(tableFormats))
	f.BoolVar(&c.Full, "full", false, fullHelp)
	c.By.addFlags(f)
	f.BoolVar(&c.Trend, "trend", false, "print how the iterations of each stage went on instead")
	f.StringVar(&c.Histogram, "histogram", "", "print how long the calls of this `function` took instead")
	c.Skip.addFlags(f, "of --trend and of the table of single spans, ")
	f.BoolVar(&c.StageFrames, "stage-frames", false, "put stages into the stacks, for viewers without -tagroot")
}

// Validate checks what the command line says of a number of recordings.
func (c *reportConfig) Validate(recordings int) error {
	views := 0
	for _, asked := range []bool{len(c.By.Names) > 0, c.Trend, c.Histogram != ""} {
		if asked {
			views++
		}
	}
	switch {
	case recordings == 0:
		return &usageError{errors.New("which recording? give a file that record --save wrote")}
	case recordings > 1 && (c.Trend || c.Histogram != ""):
		return &usageError{errors.New("which recording? --trend and --histogram are about one")}
	case recordings > 1 && len(c.By.Names) == 0 && (c.Format == formatCSV || c.Format == formatMarkdown):
		return &usageError{fmt.Errorf("which recording? the table of stages as %s is about one", c.Format)}
	case views > 1:
		return &usageError{errors.New("--by, --trend and --histogram exclude each other")}
	}
	return cmp.Or(
		validateTableFormat(c.Format), c.Skip.Validate(), c.By.Validate(),
		differentFiles([]namedFile{
			{"--output", c.Files.Output}, {"--stages-out", c.Files.Stages}, {"--spans", c.Files.Spans},
		}))
}

func newReportCmd() *cobra.Command {
	var c reportConfig
	cmd := &cobra.Command{
		Use:   "report FILE...",
		Short: "Print the tables of a saved recording, or make its profiles again",
		Long: `Report reads what "record --save" saved, on any machine, and prints the same
table and writes the same profiles as record did. It needs no privileges.

Several files, such as those of all ranks, are compared process by process: each
stage with the slowest process first, and one profile of all. In names of files
{rank} and {pid} stand for the process's, and ask for one file of each.

--by prints a table of calls instead, grouped by any of these, in any order:
` + dimensionHelp() + `
It takes several recordings, too. --match chooses groups by a regular expression
on their key, which is written "stage=forward gil=free"; --sort sorts by a column
(` + list(correlate.GroupColumnNames()) + `,
or one of those that it is grouped by). By python, a row's exact totals are divided
over lines in proportion to the calls whose stack was read: SAMPLES says how many.
By region, alone or with stages, threads and processes, there is also the time that
threads spent there, and its parts.

--trend prints how the iterations of each stage went on, and how long they were
warming up. --histogram prints how long the calls of one function took.`,
		Example: `  sudo stageprof record --pid 4242 -d 30s --save run.rec
  stageprof report run.rec
  stageprof report run.rec --by stage,gil --match gil=held
  stageprof report run.rec --by symbol,caller --sort calls --top 10 --format csv
  stageprof report run.rec --by stage,python --sort caused --top 5
  stageprof report run.rec --by region,stage --sort wall
  stageprof report rank*.rec -o all.pb.gz
  stageprof report rank*.rec --by rank,stage
  stageprof report run.rec --trend --skip-warmup
  stageprof report run.rec --histogram cuStreamSynchronize
  stageprof report run.rec --format json --stages-out stages.pb.gz --spans spans.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.Validate(len(args)); err != nil {
				return err
			}
			return c.run(args, cmd.OutOrStdout())
		},
	}
	c.addFlags(cmd.Flags())
	completeFlags(cmd, tableFormats...)
	return cmd
}

func (c *reportConfig) run(paths []string, stdout io.Writer) error {
	var ledgers []*correlate.Ledger
	for _, path := range paths {
		ledger, err := readLedger(path, c.Skip.Skip)
		if err != nil {
			return err
		}
		ledgers = append(ledgers, ledger)
	}
	view, err := c.view(ledgers)
	if err != nil {
		return err
	}
	var files outputs
	defer files.discard() // what was not committed
	writers, err := openWriters(&files, c.Files, pprofout.Options{StageFrames: c.StageFrames})
	if err != nil {
		return err
	}
	if err := writeAll(writers, &files, ledgers); err != nil {
		return err
	}
	if view != nil {
		return printView(stdout, view, c.Format)
	}
	if len(ledgers) > 1 {
		return printProcesses(stdout, ledgers, nil, c.Format, c.Full)
	}
	return printTable(stdout, ledgers[0], c.Format, c.Full)
}

// view is the one table that was asked for, nil for those that close a
// recording. These are many tables; CSV and Markdown have room for the one of
// stages.
func (c *reportConfig) view(ledgers []*correlate.Ledger) (*report.View, error) {
	switch {
	case len(c.By.Names) > 0:
		return report.Groups(correlate.GroupCalls(ledgers, c.By.options)), nil
	case c.Trend:
		return report.Trend(ledgers[0], c.Skip.Skip), nil
	case c.Histogram != "":
		return report.Histogram(ledgers[0], c.Histogram)
	case c.Format == formatCSV, c.Format == formatMarkdown:
		return report.StageTable(ledgers[0]), nil
	}
	return nil, nil
}

func printView(w io.Writer, view *report.View, format string) error {
	switch format {
	case formatJSON:
		return view.JSON(w)
	case formatCSV:
		return view.CSV(w)
	case formatMarkdown:
		return view.Markdown(w)
	default:
		return view.Text(w, terminalWidth(w))
	}
}

func readLedger(path string, skip correlate.Skip) (*correlate.Ledger, error) {
	rec, err := readRecording(path)
	if err != nil {
		return nil, err
	}
	return correlate.BuildSkipping(rec, skip), nil
}

func readRecording(path string) (*recording.Recording, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the recording: %w", err)
	}
	defer file.Close()
	rec, err := recording.Read(file)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", path, err)
	}
	return rec, nil
}

// fileWriter fills one of the files, or one of each process.
type fileWriter struct {
	what  string // is in it
	path  string
	file  io.Writer // nil: one of each process
	write func(io.Writer, []*correlate.Ledger) error
}

// names are those of the files.
func (f *fileWriter) names(ledgers []*correlate.Ledger) []string {
	if f.file != nil {
		return []string{f.path}
	}
	return namesFor(f.path, ledgers)
}

// openWriters finds out that a file can't be written before any work is done.
// Further files can be asked for beside those of a profile.
func openWriters(files *outputs, names profileFiles, options pprofout.Options, more ...fileWriter) ([]fileWriter, error) {
	var writers []fileWriter
	for _, f := range append([]fileWriter{
		{what: "profile", path: names.Output, write: func(w io.Writer, l []*correlate.Ledger) error {
			return pprofout.WriteSeveral(w, l, options)
		}},
		{what: "profile of stages", path: names.Stages, write: func(w io.Writer, l []*correlate.Ledger) error {
			return pprofout.WriteStagesOfSeveral(w, l, pprofout.Options{})
		}},
		{what: "spans", path: names.Spans, write: report.SpansOfSeveral},
	}, more...) {
		if f.path == "" {
			continue
		}
		var err error
		if perProcess(f.path) {
			err = tryOutput(f.path)
		} else {
			f.file, err = files.open(f.path)
		}
		if err != nil {
			return nil, err
		}
		writers = append(writers, f)
	}
	return writers, nil
}

// writeAll fills the files and gives all of them their names.
func writeAll(writers []fileWriter, files *outputs, ledgers []*correlate.Ledger) error {
	for _, f := range writers {
		if err := f.fill(files, ledgers); err != nil {
			return fmt.Errorf("writing %q: %w", f.path, err)
		}
	}
	return files.commit()
}

func (f *fileWriter) fill(files *outputs, ledgers []*correlate.Ledger) error {
	if f.file != nil {
		return f.write(f.file, ledgers)
	}
	for i, name := range f.names(ledgers) {
		file, err := files.open(name)
		if err != nil {
			return err
		}
		if err := f.write(file, ledgers[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func printTable(w io.Writer, ledger *correlate.Ledger, format string, full bool) error {
	if format == formatJSON {
		return report.JSON(w, ledger)
	}
	return report.Text(w, ledger, report.TextOptions{Width: terminalWidth(w), Full: full})
}

package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/correlate"
	"stageprof/report/html"
)

// htmlConfig is everything that the command line of html says.
type htmlConfig struct {
	Files  []string // one, or one from before and one from after
	Output string
	Alpha  float64
	Skip   skipFlags
}

func (c *htmlConfig) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&c.Output, "output", "o", "report.html", "write the page to this `file`")
	f.Float64Var(&c.Alpha, "alpha", 0.05, "a difference is significant if chance makes it less often than this")
	c.Skip.addFlags(f, "of what is said of single iterations, ")
}

func (c *htmlConfig) Validate() error {
	switch {
	case len(c.Files) == 0:
		return &usageError{errors.New("which recording? give one file that record --save wrote, or two to compare")}
	case len(c.Files) > 2:
		return &usageError{fmt.Errorf("the page shows one recording or compares two, there are %d", len(c.Files))}
	case c.Output == "":
		return &usageError{errors.New("--output needs the name of a file")}
	}
	for _, file := range c.Files {
		if err := differentFiles([]namedFile{{"the recording", file}, {"--output", c.Output}}); err != nil {
			return err
		}
	}
	if err := validateAlpha(c.Alpha); err != nil {
		return err
	}
	return c.Skip.Validate()
}

func newHTMLCmd() *cobra.Command {
	var c htmlConfig
	cmd := &cobra.Command{
		Use:   "html FILE | html BASE NEW",
		Short: "Write a saved recording, or what changed between two, as a page for the browser",
		Long: `Html writes what "record --save" saved as one HTML page: stages as bars, single
spans over time, the GIL, all calls with search, threads, losses and cost. Of two
recordings it also shows what changed, as diff does: per stage and iteration, and
whether chance alone could make that difference.

The page is complete in itself. It loads nothing, it can be opened from a disk or
attached to a mail, and it holds what the recording holds: command line, thread
and stage names.`,
		Example: `  sudo stageprof record --pid 4242 -d 30s --save run.rec
  stageprof html run.rec -o report.html
  stageprof html before.rec after.rec`,
		RunE: func(_ *cobra.Command, args []string) error {
			c.Files = args
			if err := c.Validate(); err != nil {
				return err
			}
			return c.run()
		},
	}
	c.addFlags(cmd.Flags())
	completeFlags(cmd)
	return cmd
}

func (c *htmlConfig) run() error {
	page, err := c.page()
	if err != nil {
		return err
	}
	var files outputs
	defer files.discard() // what was not committed
	file, err := files.open(c.Output)
	if err != nil {
		return err
	}
	if err := page(file); err != nil {
		return fmt.Errorf("writing %q: %w", c.Output, err)
	}
	return files.commit()
}

// page reads the recordings and returns what writes their page.
func (c *htmlConfig) page() (func(io.Writer) error, error) {
	var runs []correlate.Run
	for _, path := range c.Files {
		ledger, err := readLedger(path, c.Skip.Skip)
		if err != nil {
			return nil, err
		}
		runs = append(runs, correlate.Run{Name: filepath.Base(path), Ledger: ledger})
	}
	if len(runs) == 1 {
		return func(w io.Writer) error { return html.Write(w, runs[0]) }, nil
	}
	comparison, err := correlate.Compare(runs[:1], runs[1:], correlate.CompareOptions{Skip: c.Skip.Skip, Alpha: c.Alpha})
	if err != nil {
		return nil, err
	}
	return func(w io.Writer) error { return html.WriteComparison(w, comparison) }, nil
}

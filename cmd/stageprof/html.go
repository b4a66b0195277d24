package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/correlate"
	"stageprof/report/html"
)

// htmlConfig is everything that the command line of html says.
type htmlConfig struct {
	File   string
	Output string
}

func (c *htmlConfig) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&c.Output, "output", "o", "report.html", "write the page to this `file`")
}

func (c *htmlConfig) Validate() error {
	if c.Output == "" {
		return &usageError{errors.New("--output needs the name of a file")}
	}
	return differentFiles([]namedFile{{"the recording", c.File}, {"--output", c.Output}})
}

func newHTMLCmd() *cobra.Command {
	var c htmlConfig
	cmd := &cobra.Command{
		Use:   "html FILE",
		Short: "Write a saved recording as a page for the browser",
		Long: `Html writes what "record --save" saved as one HTML page: stages as bars, single
spans over time, the GIL, all calls with search, threads, losses and cost. The
page is complete in itself. It loads nothing, it can be opened from a disk or
attached to a mail, and it holds what the recording holds: command line, thread
and stage names.`,
		Example: `  sudo stageprof record --pid 4242 -d 30s --save run.rec
  stageprof html run.rec -o report.html`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("which recording? give one file that record --save wrote")}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c.File = args[0]
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
	ledger, err := readLedger(c.File, correlate.Skip{})
	if err != nil {
		return err
	}
	var files outputs
	defer files.discard() // what was not committed
	file, err := files.open(c.Output)
	if err != nil {
		return err
	}
	if err := html.Write(file, html.Recording{Name: filepath.Base(c.File), Ledger: ledger}); err != nil {
		return fmt.Errorf("writing %q: %w", c.Output, err)
	}
	return files.commit()
}

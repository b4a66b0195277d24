package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/recording"
	"stageprof/timeline"
)

// The formats of a trace.
const (
	formatPerfetto = "perfetto"
	formatChrome   = "chrome"
)

var traceFormats = []string{formatPerfetto, formatChrome}

// timelineConfig is everything that the command line of timeline says.
type timelineConfig struct {
	File   string
	Output string
	Format string // "": by the output's name
}

func (c *timelineConfig) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&c.Output, "output", "o", "trace.perfetto-trace", "write the trace to this `file`, compressed if its name ends in .gz")
	f.StringVar(&c.Format, "format", "", "format of the trace: "+list(traceFormats)+" (default by the output's name: chrome for .json and .json.gz)")
}

// takeFile completes the config with the arguments.
func (c *timelineConfig) takeFile(args []string) error {
	if len(args) != 1 {
		return &usageError{errors.New("which recording? give one file that record --timeline --save wrote")}
	}
	c.File = args[0]
	if c.Format == "" {
		c.Format = formatPerfetto
		if strings.HasSuffix(strings.TrimSuffix(c.Output, ".gz"), ".json") {
			c.Format = formatChrome
		}
	}
	return nil
}

func (c *timelineConfig) Validate() error {
	switch {
	case c.Output == "":
		return &usageError{errors.New("--output needs the name of a file")}
	case c.Format != formatPerfetto && c.Format != formatChrome:
		return &usageError{fmt.Errorf("format %q is none of %s", c.Format, list(traceFormats))}
	}
	return differentFiles([]namedFile{{"the recording", c.File}, {"--output", c.Output}})
}

func newTimelineCmd() *cobra.Command {
	var c timelineConfig
	cmd := &cobra.Command{
		Use:   "timeline FILE",
		Short: "Write a saved recording's single calls as a trace for Perfetto",
		Long: `Timeline writes what "record --timeline --save" saved as a trace: for each thread
its stages, every driver call by name and GIL state, and when it was off the CPU
and why; with arrows from what gave a stream work to the call that waited for it.
Open it in https://ui.perfetto.dev, which keeps it in the browser, or query it with
Perfetto's trace processor. The format chrome is for chrome://tracing and others
that read Chrome's JSON.`,
		Example: `  sudo stageprof record --pid 4242 -d 30s --timeline --save run.rec
  stageprof timeline run.rec -o trace.perfetto-trace
  stageprof timeline run.rec -o trace.json.gz

  # the last second before ^C only
  sudo stageprof record --pid 4242 --timeline=1s --save run.rec`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.takeFile(args); err != nil {
				return err
			}
			if err := c.Validate(); err != nil {
				return err
			}
			return c.run(newConsole(cmd.ErrOrStderr()).logger(slog.LevelWarn))
		},
	}
	c.addFlags(cmd.Flags())
	completeFlags(cmd, traceFormats...)
	return cmd
}

func (c *timelineConfig) run(log *slog.Logger) error {
	rec, err := readRecording(c.File)
	if err != nil {
		return err
	}
	if rec.Timeline == nil {
		return fmt.Errorf("%q: %w", c.File, timeline.ErrNone)
	}
	warnOfMissing(log, rec)
	var files outputs
	defer files.discard() // what was not committed
	file, err := files.open(c.Output)
	if err != nil {
		return err
	}
	if err := c.write(file, rec); err != nil {
		return fmt.Errorf("writing %q: %w", c.Output, err)
	}
	return files.commit()
}

func (c *timelineConfig) write(w io.Writer, rec *recording.Recording) error {
	write := timeline.Perfetto
	if c.Format == formatChrome {
		write = timeline.Chrome
	}
	if !strings.HasSuffix(c.Output, ".gz") {
		return write(w, rec)
	}
	z := gzip.NewWriter(w)
	if err := write(z, rec); err != nil {
		return err
	}
	return z.Close()
}

// warnOfMissing says what the trace lacks.
func warnOfMissing(log *slog.Logger, rec *recording.Recording) {
	for _, l := range rec.Losses {
		if strings.HasPrefix(l.Reason, recording.LossTimeline) {
			log.Warn("the trace is not complete", "reason", l.Reason, "count", l.Count, "help", l.Help)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/correlate"
	"stageprof/export"
)

// exportConfig is everything that the command line of export says.
type exportConfig struct {
	Receiver receiverConfig
	Timeout  time.Duration // for all tries of one recording
}

func (c *exportConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Receiver.OTLP, "otlp", "", "send to an OpenTelemetry receiver, OTLP over HTTP, or write a file: `URL|FILE`")
	c.Receiver.addFlags(f, "token-file")
	f.DurationVar(&c.Timeout, "timeout", 30*time.Second, "how long to try, for each recording")
}

// Validate checks the command line for a number of recordings. Its errors are
// faults of the command line.
func (c *exportConfig) Validate(recordings int) error {
	file := c.Receiver.file() != ""
	switch {
	case recordings == 0:
		return &usageError{errors.New("which recording? give files that record --save wrote")}
	case c.Receiver.places() == 0:
		return &usageError{errors.New("where to? name a receiver with --otlp, --pyroscope or --parca")}
	case c.Timeout <= 0:
		return &usageError{fmt.Errorf("--timeout %v leaves no time", c.Timeout)}
	case file && recordings > 1:
		return &usageError{errors.New("which recording? a file has room for one")}
	case file && (c.Receiver.TokenFile != "" || len(c.Receiver.Headers) > 0):
		return &usageError{errors.New("a file takes neither --token-file nor --header")}
	}
	if err := c.Receiver.validate(); err != nil {
		return &usageError{err}
	}
	return nil
}

func newExportCmd() *cobra.Command {
	var c exportConfig
	cmd := &cobra.Command{
		Use:   "export FILE... (--otlp URL|FILE | --pyroscope URL | --parca URL)",
		Short: "Send the profiles of saved recordings to a server that keeps profiles",
		Long: `Export makes the profile of each recording that "record --save" wrote, as report -o
does, and sends it to a server, with the process id, the rank and any --label as
labels of the whole. What is temporary (no connection, a server that is overloaded)
is tried again, waiting longer each time, for --timeout; what is refused for good is
not. Recordings that can't be sent are counted and told; the others are sent.

  --otlp       OpenTelemetry: OTLP/HTTP, v1development, at /v1development/profiles
               unless the URL has a path; or a file with the same bytes
  --pyroscope  Pyroscope's push API
  --parca      Parca's WriteRaw, by gRPC

Exit status: 0 all are sent, 1 one is not, 2 the command line is wrong.`,
		Example: `  stageprof export run.rec --pyroscope http://localhost:4040
  stageprof export rank*.rec --parca http://localhost:7070 --service trainer --label cluster=a
  stageprof export run.rec --otlp https://otel.example:4318 --token-file token
  stageprof export run.rec --otlp run.otlp`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.Validate(len(args)); err != nil {
				return err
			}
			return c.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	c.addFlags(cmd.Flags())
	return cmd
}

func (c *exportConfig) run(ctx context.Context, paths []string, stdout io.Writer) error {
	receiver, err := c.Receiver.open()
	if err != nil {
		return err
	}
	var failures []error
	for _, path := range paths {
		if err := c.export(ctx, receiver, path, stdout); err != nil {
			failures = append(failures, fmt.Errorf("exporting %q: %w", path, err))
		}
	}
	if len(failures) > 0 && len(paths) > 1 {
		failures = append(failures, fmt.Errorf("%d of %d recordings were not sent", len(failures), len(paths)))
	}
	return errors.Join(failures...)
}

// retries is how long to wait between tries.
var retries = export.Backoff{First: 250 * time.Millisecond, Max: 5 * time.Second}

func (c *exportConfig) export(ctx context.Context, receiver export.Receiver, path string, stdout io.Writer) error {
	ledger, err := readLedger(path, correlate.Skip{})
	if err != nil {
		return err
	}
	push, err := c.Receiver.push(ledger)
	if err != nil {
		return err
	}
	if receiver == nil {
		return c.writeFile(push, path, stdout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("--timeout %v is over", c.Timeout))
	defer cancel()
	tries, err := export.Deliver(ctx, receiver, push, retries)
	if errors.Is(err, export.ErrDenied) {
		return errors.Join(err, errors.New("give a token by --token-file, or what else it asks for by --header"))
	}
	if err != nil {
		return err
	}
	note := ""
	if tries > 1 {
		note = " at try " + strconv.Itoa(tries)
	}
	_, err = fmt.Fprintf(stdout, "%s: %s sent to %s as %q%s\n", path, size(push), c.Receiver.place(), push.Service, note)
	return err
}

func (c *exportConfig) writeFile(push export.Push, path string, stdout io.Writer) error {
	content, err := export.EncodeOTLP(push)
	if err != nil {
		return err
	}
	var files outputs
	defer files.discard() // what was not committed
	w, err := files.open(c.Receiver.OTLP)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("writing %q: %w", c.Receiver.OTLP, err)
	}
	if err := files.commit(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: %s written to %s as %q\n", path, size(push), c.Receiver.OTLP, push.Service)
	return err
}

// size says how much is in a profile.
func size(p export.Push) string {
	var calls int64
	for _, s := range p.Profile.Sample {
		calls += s.Value[0]
	}
	return fmt.Sprintf("%d calls in %d samples", calls, len(p.Profile.Sample))
}

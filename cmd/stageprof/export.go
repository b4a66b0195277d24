package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"stageprof/correlate"
	"stageprof/export"
	"stageprof/pprofout"
	"stageprof/recording"
)

// exportConfig is everything that the command line of export says.
type exportConfig struct {
	OTLP, Pyroscope, Parca string // one of them is where to
	Service                string
	Labels, Headers        []string // NAME=VALUE
	TokenFile              string
	Timeout                time.Duration // for all tries of one recording
	StageFrames            bool

	labels, headers []export.Label
}

func (c *exportConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.OTLP, "otlp", "", "to an OpenTelemetry receiver, OTLP over HTTP, or into a file: `URL|FILE`")
	f.StringVar(&c.Pyroscope, "pyroscope", "", "to Pyroscope, at this `URL`")
	f.StringVar(&c.Parca, "parca", "", "to Parca, by gRPC; http or https (TLS): `URL`")
	f.StringVar(&c.Service, "service", "", "`name` of what was recorded (default: its script or program)")
	f.StringArrayVar(&c.Labels, "label", nil, "label of the profile, `NAME=VALUE`; may be repeated")
	f.StringArrayVar(&c.Headers, "header", nil, "header of the requests, `NAME=VALUE`; may be repeated")
	f.StringVar(&c.TokenFile, "token-file", "", "send the token that is the first line of this `file`")
	f.DurationVar(&c.Timeout, "timeout", 30*time.Second, "how long to try, for each recording")
	f.BoolVar(&c.StageFrames, "stage-frames", false, "put stages into the stacks, for viewers that can't make frames of labels")
}

// labelName is the grammar of Prometheus's labels. What begins with __ is theirs.
var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// ownLabels are those that export sets itself.
var ownLabels = []string{"service_name", "job", "pid", "rank", "world_size"}

// Validate checks the command line for a number of recordings. Its errors are
// faults of the command line.
func (c *exportConfig) Validate(recordings int) error {
	places := 0
	for _, place := range []string{c.OTLP, c.Pyroscope, c.Parca} {
		if place != "" {
			places++
		}
	}
	switch {
	case recordings == 0:
		return &usageError{errors.New("which recording? give files that record --save wrote")}
	case places == 0:
		return &usageError{errors.New("where to? name a receiver with --otlp, --pyroscope or --parca")}
	case places > 1:
		return &usageError{errors.New("--otlp, --pyroscope and --parca exclude each other")}
	case c.Timeout <= 0:
		return &usageError{fmt.Errorf("--timeout %v leaves no time", c.Timeout)}
	case c.file() != "" && recordings > 1:
		return &usageError{errors.New("which recording? a file has room for one")}
	case c.file() != "" && (c.TokenFile != "" || len(c.Headers) > 0):
		return &usageError{errors.New("a file takes neither --token-file nor --header")}
	}
	if err := c.validateURL(); err != nil {
		return &usageError{err}
	}
	var err error
	if c.labels, err = parsePairs("--label", c.Labels, checkLabel); err != nil {
		return &usageError{err}
	}
	if c.headers, err = parsePairs("--header", c.Headers, checkHeader); err != nil {
		return &usageError{err}
	}
	return nil
}

// file is where OTLP goes to, "" if that is no file.
func (c *exportConfig) file() string {
	if strings.Contains(c.OTLP, "://") {
		return ""
	}
	return c.OTLP
}

func (c *exportConfig) validateURL() error {
	if c.file() != "" {
		return nil
	}
	for flag, text := range map[string]string{"--otlp": c.OTLP, "--pyroscope": c.Pyroscope, "--parca": c.Parca} {
		if text == "" {
			continue
		}
		u, err := url.Parse(text)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", flag, err)
		case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			return fmt.Errorf("%s %q is not of the form http://HOST:PORT or https://HOST", flag, text)
		case u.User != nil:
			return fmt.Errorf("%s: a password in a URL is seen by everybody here: use --token-file", flag)
		case flag == "--parca" && u.Port() == "":
			return fmt.Errorf("%s %q has no port (Parca's own is 7070)", flag, text)
		case flag == "--parca" && strings.Trim(u.Path, "/") != "":
			return fmt.Errorf("%s %q has a path, gRPC takes none", flag, text)
		}
	}
	return nil
}

func parsePairs(flag string, texts []string, check func(export.Label) error) ([]export.Label, error) {
	var out []export.Label
	for _, text := range texts {
		name, value, found := strings.Cut(text, "=")
		pair := export.Label{Name: name, Value: value}
		if !found {
			return nil, fmt.Errorf("%s %q is not of the form NAME=VALUE", flag, text)
		}
		if err := check(pair); err != nil {
			return nil, fmt.Errorf("%s %q: %w", flag, text, err)
		}
		if slices.ContainsFunc(out, func(l export.Label) bool { return l.Name == name }) {
			return nil, fmt.Errorf("%s %q: there is one of that name already", flag, text)
		}
		out = append(out, pair)
	}
	return out, nil
}

func checkLabel(l export.Label) error {
	switch {
	case !labelName.MatchString(l.Name) || strings.HasPrefix(l.Name, "__"):
		return errors.New("a name is letters, digits and _, without a digit first and without __ in front")
	case slices.Contains(ownLabels, l.Name):
		return errors.New("that label is set by export itself")
	}
	return nil
}

func checkHeader(l export.Label) error {
	if !httpguts.ValidHeaderFieldName(l.Name) || !httpguts.ValidHeaderFieldValue(l.Value) {
		return errors.New("that can't be a header")
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
	token, err := readToken(c.TokenFile)
	if err != nil {
		return err
	}
	receiver := c.receiver(export.Auth{Token: token, Headers: c.headers})
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

// receiver is where to, nil for a file.
func (c *exportConfig) receiver(auth export.Auth) export.Receiver {
	switch {
	case c.Pyroscope != "":
		return export.Pyroscope{URL: c.Pyroscope, Auth: auth}
	case c.Parca != "":
		return export.Parca{URL: c.Parca, Auth: auth}
	case c.file() == "":
		return export.OTLP{URL: c.OTLP, Auth: auth}
	}
	return nil
}

// retries is how long to wait between tries.
var retries = export.Backoff{First: 250 * time.Millisecond, Max: 5 * time.Second}

func (c *exportConfig) export(ctx context.Context, receiver export.Receiver, path string, stdout io.Writer) error {
	ledger, err := readLedger(path, correlate.Skip{})
	if err != nil {
		return err
	}
	push, err := c.push(ledger)
	if err != nil {
		return err
	}
	if receiver == nil {
		return c.writeFile(push, path, stdout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("--timeout %v is over", c.Timeout))
	defer cancel()
	tries, err := export.Deliver(ctx, receiver, push, retries)
	if err != nil {
		return err
	}
	note := ""
	if tries > 1 {
		note = " at try " + strconv.Itoa(tries)
	}
	_, err = fmt.Fprintf(stdout, "%s: %s sent to %s as %q%s\n", path, size(push), c.OTLP+c.Pyroscope+c.Parca, push.Service, note)
	return err
}

func (c *exportConfig) writeFile(push export.Push, path string, stdout io.Writer) error {
	content, err := export.EncodeOTLP(push)
	if err != nil {
		return err
	}
	var files outputs
	defer files.discard() // what was not committed
	w, err := files.open(c.OTLP)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("writing %q: %w", c.OTLP, err)
	}
	if err := files.commit(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: %s written to %s as %q\n", path, size(push), c.OTLP, push.Service)
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

func (c *exportConfig) push(ledger *correlate.Ledger) (export.Push, error) {
	p, err := pprofout.Profile(ledger, pprofout.Options{StageFrames: c.StageFrames, Version: versionString()})
	if err != nil {
		return export.Push{}, err
	}
	target := ledger.Source.Target
	service := c.Service
	if service == "" {
		service = serviceOf(target)
	}
	labels := []export.Label{{Name: "pid", Value: strconv.Itoa(target.PID)}, {Name: "rank", Value: strconv.Itoa(target.Rank)}}
	if target.WorldSize > 1 {
		labels = append(labels, export.Label{Name: "world_size", Value: strconv.Itoa(target.WorldSize)})
	}
	return export.Push{Profile: p, Service: service, Labels: append(labels, c.labels...), Version: versionString()}, nil
}

// serviceOf names what was recorded: the Python script or module, else the program.
func serviceOf(t recording.Target) string {
	if t.Python != nil {
		for i, arg := range t.Cmdline[min(1, len(t.Cmdline)):] {
			switch {
			case arg == "-m" && i+2 < len(t.Cmdline):
				return t.Cmdline[i+2]
			case strings.HasSuffix(arg, ".py"):
				return strings.TrimSuffix(filepath.Base(arg), ".py")
			}
		}
	}
	return filepath.Base(t.Exe)
}

package main

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"stageprof/correlate"
	"stageprof/export"
	"stageprof/pprofout"
	"stageprof/recording"
)

// receiverConfig is what a command line says about a server that keeps profiles,
// and about what it is sent.
type receiverConfig struct {
	OTLP, Pyroscope, Parca string // at most one of them is where to
	Service                string
	Labels, Headers        []string // NAME=VALUE
	TokenFile              string
	StageFrames            bool

	tokenFlag       string // what TokenFile is called
	labels, headers []export.Label
}

// addFlags adds all flags but --otlp, whose meaning is each command's own.
func (c *receiverConfig) addFlags(f *pflag.FlagSet, tokenFlag string) {
	c.tokenFlag = tokenFlag
	f.StringVar(&c.TokenFile, tokenFlag, "", "send that server the token that is the first line of this `file`")
	f.StringVar(&c.Pyroscope, "pyroscope", "", "send to Pyroscope, at this `URL`")
	f.StringVar(&c.Parca, "parca", "", "send to Parca, by gRPC; http or https (TLS): `URL`")
	f.StringVar(&c.Service, "service", "", "`name` of what is recorded (default: its script or program)")
	f.StringArrayVar(&c.Labels, "label", nil, "label of what is sent, `NAME=VALUE`; may be repeated")
	f.StringArrayVar(&c.Headers, "header", nil, "header of the requests, `NAME=VALUE`; may be repeated")
	f.BoolVar(&c.StageFrames, "stage-frames", false, "put stages into the stacks, for viewers that can't make frames of labels")
}

// places is how many receivers are named.
func (c *receiverConfig) places() (n int) {
	for _, place := range []string{c.OTLP, c.Pyroscope, c.Parca} {
		if place != "" {
			n++
		}
	}
	return n
}

// place is the receiver that is named.
func (c *receiverConfig) place() string { return c.OTLP + c.Pyroscope + c.Parca }

// validate checks what is said, and completes it.
func (c *receiverConfig) validate() error {
	if c.places() > 1 {
		return errors.New("--otlp, --pyroscope and --parca exclude each other")
	}
	if err := c.validateURL(); err != nil {
		return err
	}
	var err error
	if c.labels, err = parsePairs("--label", c.Labels, checkLabel); err != nil {
		return err
	}
	c.headers, err = parsePairs("--header", c.Headers, checkHeader)
	return err
}

// labelName is the grammar of Prometheus's labels. What begins with __ is theirs.
var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// ownLabels are those that export sets itself.
var ownLabels = []string{"service_name", "job", "pid", "rank", "world_size"}

// file is where OTLP goes to, "" if that is no file.
func (c *receiverConfig) file() string {
	if strings.Contains(c.OTLP, "://") {
		return ""
	}
	return c.OTLP
}

func (c *receiverConfig) validateURL() error {
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
			return fmt.Errorf("%s: a password in a URL is seen by everybody here: use --%s", flag, c.tokenFlag)
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

// open is where to, nil for a file.
func (c *receiverConfig) open() (export.Receiver, error) {
	token, err := readToken(c.TokenFile)
	if err != nil {
		return nil, err
	}
	auth := export.Auth{Token: token, Headers: c.headers}
	switch {
	case c.Pyroscope != "":
		return export.Pyroscope{URL: c.Pyroscope, Auth: auth}, nil
	case c.Parca != "":
		return export.Parca{URL: c.Parca, Auth: auth}, nil
	case c.file() == "":
		return export.OTLP{URL: c.OTLP, Auth: auth}, nil
	}
	return nil, nil
}

// push is the profile of a recording with the labels of the whole.
func (c *receiverConfig) push(ledger *correlate.Ledger) (export.Push, error) {
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

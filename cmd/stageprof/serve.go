package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/agent"
	"stageprof/export"
	"stageprof/gpu"
	"stageprof/serve"
)

func newServeCmd() *cobra.Command {
	var c serveConfig
	cmd := &cobra.Command{
		Use:   "serve (--pid PID | --match REGEXP) [flags]",
		Short: "Show a running process over HTTP: profiles, metrics, a live page",
		Long: `Serve attaches to a running process and answers, until ^C:

  /                    a page with the stages as they go
  /debug/pprof/cuda    a profile of the next seconds (?seconds=30)
  /debug/pprof/stages  the same of the stages' whole wall time
  /metrics             counters for Prometheus
  /healthz             200 while a process is being recorded, 503 otherwise

--match finds the process by its name or command line, among those that have
mapped a CUDA driver; there must be one. Every user of this machine can start
such a process: --user leaves out those of others. With --follow it is waited for, and its
next incarnation is recorded when it has ended; counters go on. Without it, the
counters can be read on after its end.

Only this machine is served, unless --listen names another address. A token, the
first line of --token-file, is then advisable: requests carry it as a bearer
token, or as the password of any user.

With --otlp, --pyroscope or --parca the profile of each minute (--export-every) is
sent to a server that keeps profiles, as "stageprof export" does. A server that is
away is tried again, and the latest 16 profiles wait for it; what is dropped or
refused is logged and counted in /metrics. At the end what waits has 10 seconds.`,
		Example: `  sudo stageprof serve --pid 4242
  go tool pprof -tagroot=stage,gil 'http://127.0.0.1:8765/debug/pprof/cuda?seconds=10'

  # whatever is training, again and again, for a Prometheus elsewhere
  sudo stageprof serve --match 'train\.py' --user alice --follow --listen 0.0.0.0:8765 --token-file token

  # and its profiles to Pyroscope, minute by minute
  sudo stageprof serve --match 'train\.py' --follow --pyroscope http://pyroscope:4040 --label cluster=a`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			log := newConsole(cmd.ErrOrStderr()).logger(logLevel(c.Quiet, c.Verbose))
			confine(log, toAttach(c.Agent.Mechanism)|toListen(c.Listen))
			return c.run(cmd.Context(), log)
		},
	}
	c.addFlags(cmd.Flags())
	completeFlags(cmd)
	return cmd
}

// serveConfig is everything that the command line of serve says.
type serveConfig struct {
	Agent      targetConfig
	Match      string
	User       string
	Follow     bool
	Listen     string
	AllowHosts []string
	TokenFile  string
	Receiver   receiverConfig
	Every      time.Duration // of what is sent to the receiver
	NoGPU      bool
	Quiet      bool
	Verbose    bool

	pattern *regexp.Regexp // nil without Match
	uid     int            // agent.AnyUser without User
}

func (c *serveConfig) addFlags(f *pflag.FlagSet) {
	c.Agent.addFlags(f, agent.PythonStacksOff)
	f.StringVar(&c.Match, "match", "", "attach to the process whose name or command line has a match of this `regexp`")
	f.StringVar(&c.User, "user", "", "with --match: only processes of this user, `name|id`")
	f.BoolVar(&c.Follow, "follow", false, "wait for a process that matches, and record the next one when it has ended")
	f.StringVar(&c.Listen, "listen", "127.0.0.1:8765", "`address:port` to serve on; port 0: any")
	f.StringSliceVar(&c.AllowHosts, "allow-host", nil, "`name` of this machine that requests may use, beside addresses and localhost")
	f.StringVar(&c.TokenFile, "token-file", "", "ask for the token that is the first line of this `file`")
	f.StringVar(&c.Receiver.OTLP, "otlp", "", "send to an OpenTelemetry receiver, OTLP over HTTP, at this `URL`")
	c.Receiver.addFlags(f, "export-token-file")
	c.Every = defaultEvery
	f.Var((*durationValue)(&c.Every), "export-every", "how much time is in each profile that is sent")
	f.BoolVar(&c.NoGPU, "no-gpu", false, "do not read NVML")
	f.BoolVarP(&c.Quiet, "quiet", "q", false, "print warnings and errors only")
	f.BoolVarP(&c.Verbose, "verbose", "v", false, "say what is being done")
}

// Validate checks everything that can be checked without a target. Its errors
// are faults of the command line.
func (c *serveConfig) Validate() error {
	c.Agent.complete()
	c.Agent.Live = true
	switch {
	case c.Agent.PID == 0 && c.Match == "":
		return &usageError{errors.New("which process? give its id with --pid, or describe it with --match")}
	case c.Agent.PID != 0 && c.Match != "":
		return &usageError{errors.New("--pid and --match exclude each other")}
	case c.User != "" && c.Match == "":
		return &usageError{errors.New("--user is about --match: --pid names one process, whoever it belongs to")}
	case c.Follow && c.Match == "":
		return &usageError{errors.New("--follow needs --match: a process id has no next incarnation")}
	case c.Quiet && c.Verbose:
		return &usageError{errors.New("--quiet and --verbose exclude each other")}
	}
	if err := validateListen(c.Listen); err != nil {
		return &usageError{err}
	}
	if err := c.findUser(); err != nil {
		return &usageError{err}
	}
	if err := c.validateExport(); err != nil {
		return &usageError{err}
	}
	check := c.Agent.Config
	if c.Match != "" {
		pattern, err := regexp.Compile(c.Match)
		if err != nil {
			return &usageError{fmt.Errorf("--match: %w", err)}
		}
		c.pattern, check.PID = pattern, 1
	}
	return check.Validate()
}

// How much time is in each profile that is sent.
const (
	defaultEvery  = time.Minute
	shortestEvery = time.Second
)

func (c *serveConfig) validateExport() error {
	r := &c.Receiver
	said := r.TokenFile != "" || r.Service != "" || r.StageFrames || len(r.Labels)+len(r.Headers) > 0 || c.Every != defaultEvery
	switch {
	case r.places() == 0 && said:
		return errors.New("where are profiles to be sent? name a receiver with --otlp, --pyroscope or --parca")
	case r.file() != "":
		return fmt.Errorf("--otlp %q is not of the form http://HOST:PORT or https://HOST", r.OTLP)
	case c.Every < shortestEvery:
		return fmt.Errorf("--export-every %v is shorter than %v", c.Every, shortestEvery)
	}
	return r.validate()
}

// findUser finds the id of the user whose processes are looked at.
func (c *serveConfig) findUser() error {
	c.uid = agent.AnyUser
	if c.User == "" {
		return nil
	}
	id := c.User
	if found, err := user.Lookup(c.User); err == nil {
		id = found.Uid
	}
	uid, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return fmt.Errorf("--user %q is neither a user's name here nor an id", c.User)
	}
	c.uid = int(uid)
	return nil
}

// validateListen takes addresses, so that nobody serves the world by a name or by
// leaving something out.
func validateListen(listen string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %q is no address:port: %w", listen, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--listen %q: port %q is none of 0 to 65535", listen, port)
	} else if host == "" {
		return fmt.Errorf("--listen %q names no address; if every one of this machine is meant, write 0.0.0.0:%d", listen, n)
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "localhost" {
		return fmt.Errorf("--listen %q: %q is neither an IP address nor localhost", listen, host)
	}
	return nil
}

func (c *serveConfig) run(parent context.Context, log *slog.Logger) error {
	ctx, _, release := interrupts(parent)
	defer release()
	token, err := readToken(c.TokenFile)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	ready := sync.OnceFunc(func() { announce(log, listener.Addr(), token) })
	config := serve.Config{
		Open: c.open(log, ready), Follow: c.Follow, Hosts: c.AllowHosts, Token: token, Ready: ready, Version: versionString(), Log: log,
	}
	if config.Export, err = c.openExport(log); err != nil {
		return errors.Join(err, listener.Close())
	}
	if poller := c.openGPU(ctx, log); poller != nil {
		defer poller.Close()
		config.GPU = poller
	}
	return serve.New(config).Run(ctx, listener)
}

// announce says where requests are answered.
func announce(log *slog.Logger, address net.Addr, token string) {
	log.Info("serving", "address", "http://"+address.String())
	if tcp, ok := address.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && token == "" {
		log.Warn("everyone who reaches this address can read everything; --token-file asks for a token")
	}
}

// Bounds of what is sent.
const (
	exportTry   = 30 * time.Second // one try
	exportGrace = 10 * time.Second // what waits when serve ends
	exportRoom  = 16               // profiles that wait
	exportPause = time.Minute      // the longest between tries
)

// openExport is where profiles are sent, nil for nowhere.
func (c *serveConfig) openExport(log *slog.Logger) (*serve.Export, error) {
	if c.Receiver.places() == 0 {
		return nil, nil
	}
	receiver, err := c.Receiver.open()
	if err != nil {
		return nil, err
	}
	log.Info("profiles are sent", "to", c.Receiver.place(), "every", c.Every)
	return &serve.Export{Every: c.Every, Push: c.Receiver.push, Sender: export.NewSender(export.SenderConfig{
		Receiver: receiver, Backoff: export.Backoff{First: time.Second, Max: exportPause},
		Try: exportTry, Grace: exportGrace, Room: exportRoom, Log: log,
	})}, nil
}

// open finds the process and attaches to it. While it waits for the driver there,
// it is ready.
func (c *serveConfig) open(log *slog.Logger, ready func()) serve.Opener {
	var finder agent.Finder
	return func(ctx context.Context) (serve.Session, error) {
		config := c.Agent.Config
		config.Log, config.Version, config.Command = log, versionString(), os.Args
		config.Progress = func(agent.Progress) { ready() }
		if c.pattern != nil {
			pid, err := finder.Find(ctx, c.pattern, c.uid)
			if errors.Is(err, agent.ErrNoMatch) || errors.Is(err, agent.ErrManyMatch) {
				return nil, fmt.Errorf("%w: %w", serve.ErrNoTarget, err)
			}
			if err != nil {
				return nil, err
			}
			config.PID = pid
		}
		session, err := agent.Open(ctx, config)
		if err != nil {
			return nil, err
		}
		return session, nil
	}
}

func (c *serveConfig) openGPU(ctx context.Context, log *slog.Logger) *gpu.Poller {
	if c.NoGPU {
		return nil
	}
	poller, err := gpu.Open(ctx, gpu.DefaultPeriod)
	if err != nil {
		log.Debug("GPUs are not sampled", "reason", err)
		return nil
	}
	poller.Start(ctx)
	return poller
}

// maxToken bounds what is read of a token file.
const maxToken = 4096

// readToken reads the first line of a file that only its owner should read.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("token file %q can be read by others (mode %04o): chmod 600 it", path, info.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(file, maxToken))
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	token := strings.TrimSpace(string(line))
	if token == "" {
		return "", fmt.Errorf("token file %q has no token in its first line", path)
	}
	return token, nil
}

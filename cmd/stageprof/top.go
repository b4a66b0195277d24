package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stageprof/agent"
	"stageprof/top"
)

// topConfig is everything that the command line of top says.
type topConfig struct {
	Agent    targetConfig
	Interval time.Duration
	Once     bool
}

func (c *topConfig) addFlags(f *pflag.FlagSet) {
	c.Agent.addFlags(f, agent.PythonStacksSampled)
	f.DurationVarP(&c.Interval, "interval", "i", top.DefaultInterval, "how often to draw anew")
	f.BoolVar(&c.Once, "once", false, "print one frame as plain text after one interval, and exit")
}

// Validate checks everything that can be checked without a target.
func (c *topConfig) Validate() error {
	if err := c.Agent.Validate(); err != nil {
		return err
	}
	switch {
	case c.Interval < top.LeastInterval:
		return &usageError{fmt.Errorf("interval %v is shorter than %v", c.Interval, top.LeastInterval)}
	case c.Interval > top.MostInterval:
		return &usageError{fmt.Errorf("interval %v is longer than %v", c.Interval, top.MostInterval)}
	}
	return nil
}

func newTopCmd() *cobra.Command {
	var c topConfig
	cmd := &cobra.Command{
		Use:   "top --pid PID [flags]",
		Short: "Watch a running process's stages on the terminal",
		Long: `Top attaches to a running process as record does, and shows where its stages spend
their wall time while it runs: per iteration or per second, now and since the start,
with tables of a stage's calls, waits, lines of Python, and threads. ? shows the keys.
Nothing is written.

The process is never stopped. When it exits, the last screen stays until q. Quitting
takes the probes off.

Without a terminal, --once prints one frame as plain text. NO_COLOR in the environment
leaves colours out; letters tell the parts of the bars apart then.`,
		Example: `  sudo stageprof top --pid 4242
  sudo stageprof top --pid 4242 --interval 5s --stages-from markers,nvtx
  sudo stageprof top --pid 4242 --once --interval 10s > frame.txt`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			if !c.Once {
				if err := top.CheckTerminal(os.Stdin, os.Stdout, os.Getenv); err != nil {
					return err
				}
			}
			console := newConsole(cmd.ErrOrStderr())
			confine(console.logger(slog.LevelWarn), toAttach(c.Agent.Mechanism))
			return c.run(cmd, console)
		},
	}
	c.addFlags(cmd.Flags())
	completeFlags(cmd)
	return cmd
}

// run attaches, shows what is recorded, and takes the probes off. An interrupt
// ends whatever is going on; a second one has its usual meaning only once the
// probes are off.
func (c *topConfig) run(cmd *cobra.Command, console *console) error {
	ctx, _, release := interrupts(cmd.Context())
	defer release()
	defer console.setStatus("")

	config := c.Agent.Config
	config.Live = true
	config.Version, config.Command = versionString(), os.Args
	var attached atomic.Bool // from then on the terminal is the screen's
	config.Progress = func(p agent.Progress) {
		if !attached.Load() {
			console.setStatus("pid %d: %s", c.Agent.PID, p.State)
		}
	}
	console.setStatus("pid %d: attaching", c.Agent.PID)
	session, err := agent.Open(ctx, config)
	if err != nil {
		return err
	}
	attached.Store(true)
	console.setStatus("")
	err = c.watch(ctx, session, cmd)
	console.setStatus("pid %d: taking the probes off", c.Agent.PID)
	return errors.Join(err, session.Close())
}

// watch shows the session until the user has seen enough.
func (c *topConfig) watch(ctx context.Context, session *agent.Session, cmd *cobra.Command) error {
	ctx, stop := context.WithCancel(ctx)
	exited, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(exited)
		_, err := session.Wait(ctx)
		ended <- err
	}()
	config := top.Config{Source: session, Interval: c.Interval, Exited: exited}
	var err error
	if c.Once {
		err = top.Once(ctx, config, cmd.OutOrStdout(), terminalWidth(cmd.OutOrStdout()))
	} else {
		err = top.Run(ctx, config, os.Stdin, os.Stdout)
	}
	stop()
	return errors.Join(err, <-ended)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/correlate"
	"stageprof/gpu"
	"stageprof/pprofout"
	"stageprof/recording"
)

func newRecordCmd() *cobra.Command {
	var c recordConfig
	cmd := &cobra.Command{
		Use:   "record --pid PID [flags]",
		Short: "Record a running process and write a profile",
		Long: `Record attaches to a running process, counts and times every CUDA driver call
that it makes until the time is up, the process exits, or ^C, and then writes one
pprof profile and prints a table of its stages.

The process is never stopped. The profile is written whole or not at all: beside
its final name first, then renamed. A second ^C gives the files up; the probes are
taken off all the same.

--probes takes a list, separated by commas, of functions (cuLaunchKernel: every
spelling), exact spellings (cuLaunchKernel_ptsz) and groups: ` + list(probe.Groups()) + `.
"default" is every group but other, which holds queries and set-up; "all" is all.

--stages-from takes a list of sources of stages: the marker library (markers), the
push/pop ranges of NVTX (nvtx), PyTorch's record_function (record-function), which
PyTorch's optimizers and data loaders call by themselves. All feed one stack of
stages per thread. "stageprof doctor --pid PID" says what a process offers.
--stage-match leaves of all these only the stages whose name matches.

python:REGEXP makes stages of Python functions: a call belongs to the innermost one
on its thread's stack whose qualified name matches. That is exact for calls, and
says nothing of the functions' own time. Each call costs about 2 µs more, and up to
0.5 µs for each Python frame that is looked at.

usdt:LIB:PROVIDER:BEGIN,END makes stages of a pair of static probes, named by the
first argument of BEGIN if that is a text. function:LIB:SYMBOL makes a stage of a
native function: SYMBOL is a symbol's name, in which * stands for anything, or the
end of a C++ function's name in the source (Class::method). LIB is the name of a
mapped file, or the end of its path. Each of a function's returns costs about 5 µs.

--regions and --region follow functions that are no stages: driver calls inside
them get them as callers, and the wall time of stages is split by them. torch is PyTorch's allocator without its malloc and free,
which are torch-malloc because they run for every tensor; nccl is its collectives.
--allocations counts tensors' memory by stage, from PyTorch's own tracing points.

--python-stacks says of which calls the Python frames are read: of few (sampled),
of all, or none (off). They divide the exact totals over lines of Python code;
they never change the totals.

--timeline also saves the single events of the last 10 s, or of another time
(--timeline=2s): every call, and when threads were off the CPU, for "stageprof
timeline". It costs each call some 0.2 µs.

--budget 1% lets the process pay no more than that share of one CPU, all its threads
together: when it is used up the probes are taken off, and put in again when it is paid
for. The tables and the profile hold what was seen in these windows, exactly; how much
of the time they cover is said, and an estimate for all of it stands apart. Unless
--probes is given, groups of functions that say little are left out altogether, if the
others fit into the budget then: event, then copy or memory; which and why is said.
With --children each process has windows of its own and pays no more than that share.

--children records every process below PID, too, that has mapped the CUDA driver or
does so later: PID may be a launcher such as torchrun. Each has its own window. The
table compares them, the slowest first; the profile has all, with the labels rank and
pid. In names of files {rank} and {pid} ask for one file of each process; --save needs
that. Up to ` + strconv.Itoa(agent.MaxMembers) + ` processes are recorded at once.

Sync debt says whose work each wait for the device was for: an estimate, by number
of operations. It costs each launch some 0.1 µs; --sync-debt=false leaves it out.`,
		Example: `  # half a minute of process 4242, then look at it by stage and GIL state
  sudo stageprof record --pid 4242 --duration 30s
  go tool pprof -tagroot=stage,gil stageprof.pb.gz

  # what each stage did with its wall time, as a flame graph and span by span
  sudo stageprof record --pid 4242 -d 30s --stages-out stages.pb.gz --spans spans.jsonl
  go tool pprof -http=: stages.pb.gz

  # until ^C, only launches and synchronisation, and the table as JSON
  sudo stageprof record --pid 4242 --probes launch,sync --format json > table.json

  # no markers in the code: what PyTorch and NVTX call their parts
  sudo stageprof record --pid 4242 --stages-from nvtx,record-function -d 30s

  # a few of them only
  sudo stageprof record --pid 4242 --stages-from record-function --stage-match '^Optimizer\.step' -d 30s

  # no markers at all: a function of a library of yours is the stage
  sudo stageprof record --pid 4242 --stages-from 'function:libtrainer.so:*train_step*' -d 30s

  # what maps and unmaps memory: PyTorch's allocator in the call stacks
  sudo stageprof record --pid 4242 --regions torch -d 30s

  # a job that must not be slowed down by more than 1 % of a CPU
  sudo stageprof record --pid 4242 --budget 1% -d 5m

  # until ^C, and every single call of the last 2 s before it, for Perfetto
  sudo stageprof record --pid 4242 --timeline=2s --save run.rec
  stageprof timeline run.rec

  # all ranks of a job, by the pid of torchrun: one profile, and one recording of each
  sudo stageprof record --pid 4242 --children -d 30s --save 'run.{rank}.rec'
  go tool pprof -tagroot=rank,stage stageprof.pb.gz

  # the same at a bounded cost: each rank pays at most 1 % of a CPU
  sudo stageprof record --pid 4242 --children --budget 1% -d 5m -o 'run.{rank}.pb.gz'

  # a process that has only just been started
  sudo stageprof record --pid 4242 --wait --ready-file ready --duration 10s`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Who names functions wants these.
			c.Agent.LeaveOut = c.Agent.Budget > 0 && !cmd.Flags().Changed("probes")
			if err := c.Validate(); err != nil {
				return err
			}
			r := newRecorder(&c, cmd.OutOrStdout(), cmd.ErrOrStderr())
			confine(r.log, toAttach(c.Agent.Mechanism)|toWrite(c.Output, c.Stages, c.Spans, c.Save, c.ReadyFile))
			return r.run(cmd.Context())
		},
	}
	c.addFlags(cmd.Flags())
	completeFlags(cmd)
	return cmd
}

// garbagePercent is how much garbage there may be beside what is in use, once the
// probes are live. The target needs the machine's memory more than we need the
// little time that collecting it more often takes. GOGC says otherwise.
const garbagePercent = 25

// recorder carries out one record command.
type recorder struct {
	config  *recordConfig
	stdout  io.Writer
	console *console
	log     *slog.Logger

	files   outputs
	writers []fileWriter
	ready   outputs
	poller  *gpu.Poller // nil when NVML is not read
	gpuNote string
}

func newRecorder(c *recordConfig, stdout, stderr io.Writer) *recorder {
	console := newConsole(stderr)
	return &recorder{config: c, stdout: stdout, console: console, log: console.logger(logLevel(c.Quiet, c.Verbose))}
}

// run records until the window ends or the first interrupt; the second one
// gives the files up. The probes are taken off in any case: a process that takes
// them off itself, and is killed meanwhile, leaves them in the target. A third
// interrupt has its usual meaning.
func (r *recorder) run(parent context.Context) error {
	ctx, again, release := interrupts(parent)
	release = sync.OnceFunc(release)
	defer release()
	defer r.files.discard() // what was not committed
	defer r.ready.discard()

	if err := r.openFiles(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- r.record(ctx) }()
	select {
	case err := <-done:
		return err
	case <-again:
		release()
		aborted := r.files.discard()
		<-done
		if aborted {
			return errAborted
		}
		return errors.New("interrupted twice: the files are written, the table is not")
	}
}

// openFiles finds out that a file can't be written before anything is attached.
func (r *recorder) openFiles() error {
	c := r.config
	var err error
	r.writers, err = openWriters(&r.files, profileFiles{c.Output, c.Stages, c.Spans},
		pprofout.Options{StageFrames: c.StageFrames}, fileWriter{what: "recording", path: c.Save, write: writeRecording})
	if err != nil {
		return err
	}
	if c.ReadyFile != "" {
		return r.openReadyFile()
	}
	return nil
}

// openReadyFile prepares the file that tells others to go ahead. One that an
// earlier run has left would do so too early, so it goes; it is empty, and
// nothing that isn't can be meant.
func (r *recorder) openReadyFile() error {
	path := r.config.ReadyFile
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() || info.Size() > 0 {
			return fmt.Errorf("ready file %q exists already and is no empty file", path)
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing the ready file of an earlier run: %w", err)
		}
	}
	_, err := r.ready.open(path)
	return err
}

func (r *recorder) record(ctx context.Context) error {
	r.openGPU(ctx)
	defer r.closeGPU()

	c := r.config.Agent.Config
	c.Version = versionString()
	c.Command = os.Args
	c.Log = r.log
	c.Ready = func() error { return r.live(ctx) }
	c.Progress = r.progress
	if r.config.Quiet {
		c.Progress = nil
	}
	defer r.console.setStatus("")
	if r.config.Children {
		return agent.RecordFamily(ctx, c, func(family *agent.Family) error {
			r.console.setStatus("")
			r.addGPU(family.Recordings...)
			return r.finishFamily(family)
		})
	}
	c.Recorded = func(rec *recording.Recording) error {
		r.console.setStatus("")
		r.addGPU(rec)
		return r.finish(rec)
	}
	_, err := agent.Record(ctx, c)
	return err
}

// live is called when every probe is: from here on calls are counted.
func (r *recorder) live(ctx context.Context) error {
	if r.poller != nil {
		r.poller.Start(ctx)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	r.log.Debug("probes are live")
	return r.ready.commit()
}

func (r *recorder) progress(p agent.Progress) {
	of := ""
	if d := r.config.Agent.Duration; d > 0 {
		of = fmt.Sprintf(" of %v", d)
	}
	lost := ""
	if p.Lost > 0 {
		lost = fmt.Sprintf(", %d lost", p.Lost)
	}
	r.console.setStatus("pid %d: %s, %.0fs%s, %d calls%s",
		r.config.Agent.PID, p.State, p.Elapsed.Seconds(), of, p.Calls, lost)
}

// finish writes the files and then the table. The table is printed also when a
// file could not be written: it is what is left of the recording.
func (r *recorder) finish(rec *recording.Recording) error {
	switch rec.Window.End {
	case recording.EndExit, recording.EndExec:
		level := slog.LevelWarn
		if r.config.Agent.Duration == 0 && rec.Window.End == recording.EndExit {
			level = slog.LevelInfo // as long as the process runs, was what was asked for
		}
		r.log.Log(context.Background(), level, "the recording ended", "reason", rec.Window.End, "after", rec.Window.Duration)
	}
	ledger := correlate.Build(rec)
	return r.write([]*correlate.Ledger{ledger}, func() error {
		return printTable(r.stdout, ledger, r.config.Format, r.config.Full)
	})
}

// finishFamily does the same for a process and its descendants.
func (r *recorder) finishFamily(family *agent.Family) error {
	for _, missed := range family.Missed {
		r.log.Warn("a process was not recorded", "process", missed)
	}
	var ledgers []*correlate.Ledger
	for _, rec := range family.Recordings {
		ledgers = append(ledgers, correlate.Build(rec))
	}
	return r.write(ledgers, func() error {
		return printProcesses(r.stdout, ledgers, family.Missed, r.config.Format, r.config.Full)
	})
}

func (r *recorder) write(ledgers []*correlate.Ledger, printTable func() error) error {
	written := writeAll(r.writers, &r.files, ledgers)
	if r.files.aborted() {
		return errAborted
	}
	if written == nil {
		r.tellFiles(ledgers)
	}
	return errors.Join(written, printTable())
}

// tellFiles names every file that was written.
func (r *recorder) tellFiles(ledgers []*correlate.Ledger) {
	for _, f := range r.writers {
		for _, name := range f.names(ledgers) {
			r.log.Info("written", "what", f.what, "file", name)
		}
	}
}

// openGPU opens NVML. Without it the recording lacks the GPUs' summary only.
func (r *recorder) openGPU(ctx context.Context) {
	if r.config.NoGPU {
		r.gpuNote = "NVML was not read (--no-gpu)"
		return
	}
	poller, err := gpu.Open(ctx, gpu.DefaultPeriod)
	if err != nil {
		r.gpuNote = err.Error()
		r.log.Debug("GPUs are not sampled", "reason", err)
		return
	}
	r.poller = poller
}

func (r *recorder) addGPU(recordings ...*recording.Recording) {
	var gpus *recording.GPU
	note := r.gpuNote
	if r.poller != nil {
		gpus, note = r.poller.Stop()
	}
	for _, rec := range recordings {
		rec.GPU, rec.GPUNote = gpus, note
		if r.poller != nil {
			rec.GPU = r.poller.Of(gpus, rec.Target.PID)
		}
	}
}

func (r *recorder) closeGPU() {
	if r.poller == nil {
		return
	}
	if err := r.poller.Close(); err != nil {
		r.log.Warn("GPU sampling did not end cleanly", "reason", err)
	}
}

package mark

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"stageprof/agent/gil"
	"stageprof/agent/target"
)

//go:embed script.py
var script string

// poll is how often the folder is looked into for the answer.
const poll = 10 * time.Millisecond

// Status says what became of a function.
type Status string

const (
	Marked    Status = "marked"
	Already   Status = "already" // it is marked already
	Undone    Status = "undone"
	NotMarked Status = "not marked" // nothing to undo
	Refused   Status = "refused"    // Outcome.Reason says why
)

// Outcome is what the script did with one function.
type Outcome struct {
	Function string `json:"function"` // module:qualname
	Status   Status `json:"status"`
	Reason   string `json:"reason"`
	// References counts the other names, in the namespaces of modules, that stood for the very same
	// function and that stand for the marked one now, or did until it was undone.
	References int `json:"references"`
	// Kept counts the names that were given another meaning after the function was marked. They
	// were left alone when it was undone.
	Kept int `json:"kept"`
}

// Run marks functions of a process, or undoes it. It returns when that is done, when the request was
// withdrawn because the main thread did not come to it (the error wraps [ErrTimeout]) or because ctx
// was done, or when the target has ended.
func Run(ctx context.Context, c Config) ([]Outcome, error) {
	p, err := target.Open(c.PID)
	if err != nil {
		return nil, err
	}
	outcomes, err := run(ctx, p, c)
	return outcomes, errors.Join(err, p.Close())
}

func run(ctx context.Context, p *target.Process, c Config) ([]Outcome, error) {
	mem, err := p.OpenMemory()
	if err != nil {
		return nil, err
	}
	outcomes, err := runIn(ctx, p, mem, c)
	return outcomes, errors.Join(err, mem.Close())
}

func runIn(ctx context.Context, p *target.Process, mem *target.Memory, c Config) ([]Outcome, error) {
	support, err := findSupport(p, mem)
	if err != nil {
		return nil, err
	}
	root, err := p.OpenRoot()
	if err != nil {
		return nil, err
	}
	f, err := makeFolder(root, p.UID())
	if err := errors.Join(err, root.Close()); err != nil {
		return nil, err
	}
	j := job{process: p, mem: mem, support: support, folder: f}
	outcomes, err := j.run(ctx, c)
	return outcomes, errors.Join(err, f.remove())
}

// job is a request on its way.
type job struct {
	process *target.Process
	mem     *target.Memory
	support gil.DebugSupport
	folder  *folder
}

func (j *job) run(ctx context.Context, c Config) ([]Outcome, error) {
	text, err := compose(j.folder.path, c)
	if err != nil {
		return nil, err
	}
	if err := j.folder.putScript(text); err != nil {
		return nil, err
	}
	if err := post(j.mem, j.support, path.Join(j.folder.path, scriptFile)); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, c.Timeout, ErrTimeout)
	defer cancel()
	b, err := j.await(waiting)
	if err != nil {
		b, err = j.giveUp(err, c.Timeout)
	}
	if err != nil {
		return nil, err
	}
	return parseAnswer(b)
}

// await waits for the answer.
func (j *job) await(ctx context.Context) ([]byte, error) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if b, ok, err := j.folder.answer(); ok || err != nil {
			return b, err
		}
		select {
		case <-ticker.C:
		case <-j.process.Exited():
			return nil, target.ErrTargetExited
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// giveUp withdraws the request, unless the script has begun: then it is waited for, as long again.
func (j *job) giveUp(cause error, patience time.Duration) ([]byte, error) {
	if errors.Is(cause, target.ErrTargetExited) {
		return nil, cause
	}
	mine, err := j.folder.claim()
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	if mine {
		if errors.Is(cause, ErrTimeout) {
			cause = j.explainTimeout()
		}
		if err := withdraw(j.mem, j.support); err != nil {
			return nil, errors.Join(cause, err)
		}
		return nil, fmt.Errorf("waiting for process %d to mark its functions: %w", j.process.PID(), cause)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("it has begun and does not end"))
	defer cancel()
	b, err := j.await(ctx)
	if err != nil {
		err = fmt.Errorf("waiting for the script in process %d: %w", j.process.PID(), err)
	}
	return b, err
}

// explainTimeout tells a main thread that did not come from one that came and executed nothing.
func (j *job) explainTimeout() error {
	if pending, err := number(j.mem, j.support.Pending); err != nil || pending != 0 {
		return errors.Join(ErrTimeout, err)
	}
	return ErrNotExecuted
}

// compose returns the script with its last line.
func compose(folder string, c Config) (string, error) {
	type function struct {
		Function string `json:"function"`
		Stage    string `json:"stage"`
	}
	request := struct {
		Undo      bool       `json:"undo"`
		Functions []function `json:"functions"`
	}{Undo: c.Undo, Functions: []function{}}
	for _, name := range c.Functions {
		_, qualname, _ := strings.Cut(name, ":")
		request.Functions = append(request.Functions, function{name, qualname})
	}
	b, err := json.Marshal(request)
	if err != nil {
		return "", fmt.Errorf("composing the script: %w", err)
	}
	// Go's ASCII literals of valid UTF-8 mean the same in Python.
	return fmt.Sprintf("%s\n\nmain(%s, %s)\n", script, strconv.QuoteToASCII(folder), strconv.QuoteToASCII(string(b))), nil
}

// parseAnswer reads what the target wrote, which may be anything.
func parseAnswer(b []byte) ([]Outcome, error) {
	var answer struct {
		Error     string    `json:"error"`
		Functions []Outcome `json:"functions"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("reading the script's answer: %w", err)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, printable(answer.Error))
	}
	for i := range answer.Functions {
		o := &answer.Functions[i]
		o.Function, o.Reason = printable(o.Function), printable(o.Reason)
		switch o.Status {
		case Marked, Already, Undone, NotMarked, Refused:
		default:
			return nil, fmt.Errorf("reading the script's answer: status %q", o.Status)
		}
	}
	return answer.Functions, nil
}

// printable makes one line of a text that comes from the target.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
}

package gil

import (
	"errors"
	"fmt"
	"strings"

	"stageprof/agent/elfsym"
	"stageprof/agent/target"
)

// Process is what is needed of the target; [*target.Process] is one.
type Process interface {
	Mappings() ([]target.Mapping, error)
	OpenMapped(m target.Mapping) (*target.File, error)
	// ReadMemory fills b from the target's address addr, or fails.
	ReadMemory(addr uint64, b []byte) error
}

// Detect decides how to read the state of the lock in a running process, whose mappings must be
// readable. What can't be known is no error: it is [Unknown] with a reason. The plan holds until the
// process loads another interpreter or executes another program.
func Detect(p Process) (Plan, error) {
	mappings, err := p.Mappings()
	if err != nil {
		return Plan{}, err
	}
	f := finder{process: p}
	found := f.interpreters(mappings)
	return decide(p, found, f.unreadable), f.close()
}

func decide(mem reader, found []interpreter, unreadable []error) Plan {
	if len(found) == 0 {
		if len(unreadable) > 0 {
			return Plan{Method: Unknown, Reason: join(unreadable).Error()}
		}
		return Plan{Method: None}
	}
	in, d, provisional, err := choose(mem, found)
	plan := Plan{Path: in.path, FreeThreaded: d.freeThreaded, Provisional: provisional}
	if d.known {
		plan.Version = d.version.String()
	}
	if err == nil {
		err = fill(&plan, mem, in, d)
	}
	if err == nil && d.layout != nil && in.selfErr == nil {
		plan.SelfBelow = in.selfBelow
		plan.Runtime, plan.CodeType, plan.Lists = in.runtime, codeType(in), listsOf(in, d.layout)
	}
	if err == nil && in.glibc {
		plan.LockStart, plan.LockEnd = lockWords(mem, in, d)
	}
	if err != nil {
		return Plan{
			Method: Unknown, Version: plan.Version, Path: plan.Path, FreeThreaded: plan.FreeThreaded,
			Reason: err.Error(), Provisional: plan.Provisional,
		}
	}
	return plan
}

func listsOf(in interpreter, l *layout) Lists {
	return Lists{
		First:           in.runtime + l.firstInterpreter,
		NextInterpreter: l.nextInterpreter, FirstThread: l.firstThread,
		NextThread: l.nextThread, ThreadID: l.threadID,
	}
}

func codeType(in interpreter) uint64 {
	symbol, err := lookUp(in.file, "PyCode_Type")
	if err != nil {
		return 0
	}
	return in.bias + symbol.Value
}

// choose returns the interpreter that is in use, and whether that may change. Several are mapped when,
// for example, an extension was linked against libpython and loaded into a python that has its own copy.
func choose(mem reader, found []interpreter) (in interpreter, d description, provisional bool, err error) {
	var running []string
	for i, candidate := range found {
		cd, cerr := describe(mem, candidate)
		provisional = provisional || candidate.kind == cpython && cd.mayStart()
		if cd.initialised {
			running = append(running, candidate.path)
		}
		if i == 0 || cd.initialised {
			in, d, err = candidate, cd, cerr
		}
	}
	switch {
	case len(running) > 1:
		err = fmt.Errorf("several interpreters run in one process: %s", strings.Join(running, ", "))
	case len(running) == 0 && len(found) > 1:
		err = fmt.Errorf("%d interpreters are mapped and none is seen to run", len(found))
	}
	return in, d, provisional, err
}

// fill completes the plan for the interpreter in use.
func fill(plan *Plan, mem reader, in interpreter, d description) error {
	switch {
	case in.kind == otherPython:
		return errors.New("PyPy keeps its lock in another way than CPython")
	case !d.known:
		return errors.New("the version of this Python can't be told")
	case in.kind == oldCPython || d.version.before(3, 8):
		return fmt.Errorf("this is Python %s, which is older than 3.8", d.version)
	case !in.known():
		return fmt.Errorf("how Python does it on %s is not known", in.file.Machine())
	case d.version.before(3, 12):
		return currentThreadState(plan, mem, in, d)
	default:
		return threadLocal(plan, mem, in, d)
	}
}

func currentThreadState(plan *Plan, mem reader, in interpreter, d description) error {
	if d.layout.current+8 > in.size {
		return fmt.Errorf("its _PyRuntime has %d bytes, too few for Python %s", in.size, d.version)
	}
	if in.selfErr != nil {
		return in.selfErr
	}
	if err := in.read(mem, d).check(); err != nil {
		return err
	}
	plan.Method = CurrentThreadState
	plan.Address = in.runtime + d.layout.current
	plan.ThreadIDOffset = d.layout.threadID
	return nil
}

func threadLocal(plan *Plan, mem reader, in interpreter, d description) error {
	variable, err := threadVariable(in)
	if err != nil {
		return err
	}
	at, err := in.locate(mem, in.bias, variable)
	if err != nil {
		return fmt.Errorf("locating the thread-local variable (%s): %w", variable, err)
	}
	if at.module != 0 && !in.glibc {
		return errors.New("libraries' thread-local variables are found with glibc only, which is not mapped")
	}
	if d.layout != nil && d.initialised && in.selfErr == nil {
		at = in.fold(mem, at, threadPointers(in.read(mem, d)))
	}
	plan.Method = ThreadLocal
	plan.TLSModule, plan.TLSOffset = at.module, at.offset
	if d.freeThreaded {
		plan.GILEnabledAddress, err = gilEnabled(mem, in, d)
	}
	return err
}

// getters are exported functions that return the calling thread's attached thread state.
var getters = []string{
	"_PyThreadState_GetCurrent",  // 3.12
	"PyThreadState_GetUnchecked", // 3.13
	"_PyThreadState_UncheckedGet",
	"PyThreadState_Get",
}

// threadVariable finds out how the interpreter's code reaches the calling thread's thread state.
func threadVariable(in interpreter) (access, error) {
	var errs []error
	for _, name := range getters {
		symbol, err := lookUp(in.file, name)
		if errors.Is(err, elfsym.ErrNoSymbol) {
			continue
		}
		var variable access
		if err == nil {
			variable, err = readGetter(in, symbol)
		}
		if err == nil {
			return variable, nil
		}
		errs = append(errs, fmt.Errorf("reading %q: %w", name, err))
	}
	if len(errs) == 0 {
		return access{}, errors.New("it exports no function that returns the thread state")
	}
	return access{}, join(errs)
}

func readGetter(in interpreter, symbol elfsym.Symbol) (access, error) {
	code, err := readCode(in.file, symbol)
	if err != nil {
		return access{}, err
	}
	return in.decode(code, symbol.Value)
}

// readCode reads a function's code, as far as it is decoded.
func readCode(file *elfsym.File, symbol elfsym.Symbol) ([]byte, error) {
	size := uint64(getterSize)
	if symbol.Size != 0 {
		size = min(size, symbol.Size)
	}
	code := make([]byte, size)
	return code, file.ReadAtVaddr(symbol.Value, code)
}

// join puts errors, at least one, on one line: reasons become comments in profiles.
func join(errs []error) error {
	err := errs[0]
	for _, next := range errs[1:] {
		err = fmt.Errorf("%w; %w", err, next)
	}
	return err
}

func threadPointers(r pyRuntime) []uint64 {
	var pointers []uint64
	err := retry(func() error {
		interp, err := r.mainInterpreter()
		if err != nil {
			return err
		}
		pointers, err = r.threadPointers(interp)
		return err
	})
	if err != nil {
		return nil
	}
	return pointers
}

// gilEnabled returns the address of the switch of the main interpreter's lock.
func gilEnabled(mem reader, in interpreter, d description) (uint64, error) {
	if d.layout == nil {
		return 0, fmt.Errorf("free-threaded Python %s is not known", d.version)
	}
	if !d.initialised {
		return 0, errors.New("this free-threaded Python has not started yet")
	}
	lock, err := in.read(mem, d).mainLock()
	if err != nil {
		return 0, err
	}
	return lock + d.layout.enabled, nil
}

// lockWords returns the addresses, half open, of the words that threads wait on for the main
// interpreter's lock; 0, 0 when they can't be known.
func lockWords(mem reader, in interpreter, d description) (start, end uint64) {
	if d.layout == nil {
		return 0, 0
	}
	lock := in.runtime + d.layout.lock
	if d.layout.lock == 0 {
		var err error
		if lock, err = in.read(mem, d).mainLock(); err != nil {
			return 0, 0
		}
	}
	if d.freeThreaded {
		lock += lockShift
	}
	return lock + lockWordsStart, lock + in.lockWordsEnd()
}

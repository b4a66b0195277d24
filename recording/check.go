package recording

import (
	"errors"
	"fmt"
)

func (r *Recording) checkVersion() error {
	switch r.Format {
	case FormatVersion:
		return nil
	case 0:
		return errors.New("it names no format")
	}
	return versionError(r.Format)
}

// check verifies the format version and that every cross reference names a row
// that exists, so that readers can index the tables without looking.
func (r *Recording) check() error {
	if err := r.checkVersion(); err != nil {
		return err
	}
	for i, m := range r.Modules {
		if m.ID != i {
			return fmt.Errorf("module %d has id %d", i, m.ID)
		}
	}
	for i, s := range r.Symbols {
		if s.ID != i {
			return fmt.Errorf("symbol %d has id %d", i, s.ID)
		}
		if !within(s.Module, len(r.Modules)) {
			return fmt.Errorf("symbol %q names module %d of %d", s.Name, s.Module, len(r.Modules))
		}
	}
	for i, f := range r.Frames {
		if f.ID != i {
			return fmt.Errorf("frame %d has id %d", i, f.ID)
		}
		if !within(f.Module, len(r.Modules)) {
			return fmt.Errorf("frame %d names module %d of %d", i, f.Module, len(r.Modules))
		}
	}
	for i, t := range r.Threads {
		if t.ID != i {
			return fmt.Errorf("thread %d has id %d", i, t.ID)
		}
	}
	for i, p := range r.Paths {
		if p.ID != i {
			return fmt.Errorf("stage path %d has id %d", i, p.ID)
		}
		if len(p.Names) > MaxDepth {
			return fmt.Errorf("stage path %d is %d stages deep, at most %d are possible", i, len(p.Names), MaxDepth)
		}
	}
	for i, c := range r.Calls {
		if !within(c.Thread, len(r.Threads)) || !within(c.Path, len(r.Paths)) ||
			!within(c.Symbol, len(r.Symbols)) || (c.Caller != -1 && !within(c.Caller, len(r.Frames))) {
			return fmt.Errorf("call row %d names a row that does not exist", i)
		}
	}
	if err := r.checkPython(); err != nil {
		return err
	}
	for i, s := range r.Stages {
		if (s.Thread != -1 && !within(s.Thread, len(r.Threads))) || !within(s.Path, len(r.Paths)) {
			return fmt.Errorf("stage row %d names a row that does not exist", i)
		}
	}
	if err := r.checkRegions(); err != nil {
		return err
	}
	if err := r.checkAllocations(); err != nil {
		return err
	}
	if err := r.checkTimeline(); err != nil {
		return err
	}
	for i, d := range r.Debts {
		if !within(d.Thread, len(r.Threads)) || !within(d.Path, len(r.Paths)) ||
			!within(d.Symbol, len(r.Symbols)) || !within(d.Owner, len(r.Paths)) {
			return fmt.Errorf("debt row %d names a row that does not exist", i)
		}
	}
	for i := range r.Spans {
		if err := r.checkSpan(&r.Spans[i], false); err != nil {
			return fmt.Errorf("span %d %w", i, err)
		}
	}
	for i := range r.Open {
		if err := r.checkSpan(&r.Open[i], true); err != nil {
			return fmt.Errorf("open span %d %w", i, err)
		}
	}
	return nil
}

func (r *Recording) checkSpan(s *Span, ofProcess bool) error {
	thread := within(s.Thread, len(r.Threads)) || (ofProcess && s.Thread == -1)
	if !thread || !within(s.Path, len(r.Paths)) {
		return errNoRow
	}
	for _, c := range s.Calls {
		if !within(c.Symbol, len(r.Symbols)) {
			return fmt.Errorf("names symbol %d of %d", c.Symbol, len(r.Symbols))
		}
	}
	return nil
}

func (r *Recording) checkPython() error {
	for i, f := range r.PythonFunctions {
		if f.ID != i {
			return fmt.Errorf("Python function %d has id %d", i, f.ID)
		}
	}
	for i, s := range r.PythonStacks {
		if s.ID != i {
			return fmt.Errorf("Python stack %d has id %d", i, s.ID)
		}
		for _, f := range s.Frames {
			if !within(f.Function, len(r.PythonFunctions)) {
				return fmt.Errorf("Python stack %d names function %d of %d", i, f.Function, len(r.PythonFunctions))
			}
		}
	}
	for i, c := range r.Calls {
		for _, s := range c.Samples {
			if !within(s.Stack, len(r.PythonStacks)) {
				return fmt.Errorf("call row %d names Python stack %d of %d", i, s.Stack, len(r.PythonStacks))
			}
		}
	}
	return nil
}

var errNoRow = errors.New("names a row that does not exist")

func within(i, n int) bool { return i >= 0 && i < n }

package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"stageprof/agent/match"
	"stageprof/agent/pystack"
	"stageprof/recording"
)

// SourcePython, with a regular expression after a colon, makes stages of the
// Python functions whose qualified name has a match: calls belong to the innermost
// one on the stack.
const SourcePython = "python"

const pythonPrefix = SourcePython + ":"

// pythonName is bpf/types.h's PYTHON_NAME.
const pythonName = uint64(7) << 61

// maxNumbers bounds the numbers of names, which are below that.
const maxNumbers = 1 << 32

// isPythonName tells whether what stands for a name in a path is of a Python function.
func isPythonName(name uint64) bool { return name >= pythonName && name < pythonName+maxNumbers }

// compilePythonMatch makes one table of all expressions, nil if there is none.
func (c *Config) compilePythonMatch() (*match.Table, error) {
	var expressions []string
	for _, source := range c.StagesFrom {
		expression, ok := strings.CutPrefix(source, pythonPrefix)
		if !ok {
			continue
		}
		if expression == "" {
			return nil, fmt.Errorf("%w: %q names no Python functions", ErrUsage, source)
		}
		if _, err := compileMatch("Python functions", expression); err != nil { // each by itself, for a message about it
			return nil, err
		}
		expressions = append(expressions, "(?:"+expression+")")
	}
	return compileMatch("Python functions", strings.Join(expressions, "|"))
}

// preparePythonStages switches stages of Python functions on, if they are wanted,
// before the programs are loaded.
func (s *Session) preparePythonStages(spec *ebpf.CollectionSpec) (err error) {
	if s.pythonMatch, err = s.config.compilePythonMatch(); err != nil {
		return err
	}
	if s.pythonMatch == nil {
		for _, name := range []string{"python_texts", "python_codes", "python_hidden"} {
			spec.Maps[name].MaxEntries = 1
		}
		return nil
	}
	if _, err := pystack.Find(s.process, s.plan.Python); err != nil {
		return fmt.Errorf("%w: %w", ErrNoFrames, err)
	}
	if err := spec.Variables["python_stages"].Set(true); err != nil {
		return fmt.Errorf("switching stages of Python functions on: %w", err)
	}
	return nil
}

// noPythonStages is the warning that no call was made from such a function, "" if one was.
func (d *drain) noPythonStages() string {
	if d.pythonMatch == nil || slices.ContainsFunc(d.r.Paths, func(p recording.StagePath) bool { return p.PythonFunction }) {
		return ""
	}
	return "no driver call was made from a Python function whose name matches"
}

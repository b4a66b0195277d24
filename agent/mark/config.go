package mark

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// DefaultTimeout is how long a target's main thread has to come to the request.
const DefaultTimeout = 10 * time.Second

// Config says what to do to which process.
type Config struct {
	PID int
	// Functions are module:qualname each. With Undo none means all that are marked.
	Functions []string
	Undo      bool
	Timeout   time.Duration
}

// ErrUsage is wrapped by errors of [Config.Validate].
var ErrUsage = errors.New("invalid request")

// Validate checks everything that can be checked without a target.
func (c *Config) Validate() error {
	switch {
	case c.PID <= 0:
		return fmt.Errorf("%w: which process? give its id with --pid", ErrUsage)
	case len(c.Functions) == 0 && !c.Undo:
		return fmt.Errorf("%w: which functions? name them with --function module:qualname", ErrUsage)
	case c.Timeout <= 0:
		return fmt.Errorf("%w: --timeout %s is not positive", ErrUsage, c.Timeout)
	}
	for _, function := range c.Functions {
		if err := validateFunction(function); err != nil {
			return fmt.Errorf("%w: %q: %w", ErrUsage, function, err)
		}
	}
	return nil
}

// maxName is more bytes than any name in Python code has.
const maxName = 1024

func validateFunction(function string) error {
	module, name, ok := strings.Cut(function, ":")
	switch {
	case !ok:
		return errors.New("a function is named as module:qualname, such as train:Trainer.step")
	case strings.Contains(name, "<locals>"):
		return errors.New("a function that is made inside of another can't be found by its name")
	case len(function) > maxName:
		return fmt.Errorf("it is longer than %d bytes", maxName)
	case !isDotted(module):
		return fmt.Errorf("%q is no name of a module", module)
	case !isDotted(name):
		return fmt.Errorf("%q is no name of a function", name)
	}
	return nil
}

// isDotted tells whether a text consists of identifiers with dots between them.
func isDotted(text string) bool {
	for part := range strings.SplitSeq(text, ".") {
		if part == "" || strings.ContainsFunc(part, notInIdentifier) {
			return false
		}
	}
	return true
}

func notInIdentifier(r rune) bool {
	return r == unicode.ReplacementChar || r != '_' && !unicode.In(r, unicode.L, unicode.N, unicode.M)
}

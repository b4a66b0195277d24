package mark

import (
	"encoding/binary"
	"errors"
	"fmt"

	"stageprof/agent/gil"
	"stageprof/agent/target"
)

// pleaseStop is the bit of the eval breaker that makes a thread look whether something is wanted of it.
const pleaseStop = 1 << 5

var (
	// ErrUnavailable is wrapped by errors that say why a process's functions can't be marked.
	ErrUnavailable = errors.New("its functions can't be marked while it runs")
	// ErrTimeout is returned when the target's main thread did not come to the request in time.
	ErrTimeout = errors.New("its main thread executed no Python code in that time")
	// ErrNotExecuted is returned when the target's main thread took the request and did nothing.
	ErrNotExecuted = errors.New("its Python took the request and did not execute the script, such as for an audit hook " +
		"that forbids it; its stderr says why")
)

// Inspect says, by its error, why a process's functions can't be marked; nil: they can, as far as
// can be seen from outside. Nothing is written.
func Inspect(pid int) error {
	p, err := target.Open(pid)
	if err != nil {
		return err
	}
	mem, err := p.OpenMemory()
	if err == nil {
		_, err = findSupport(p, mem)
		err = errors.Join(err, mem.Close())
	}
	return errors.Join(err, p.Close())
}

// findSupport finds where requests are taken and makes sure that one would be.
func findSupport(p *target.Process, mem *target.Memory) (gil.DebugSupport, error) {
	support, err := gil.FindDebugSupport(p, mem)
	if err != nil {
		return support, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	enabled, err := number(mem, support.Enabled)
	if err != nil {
		return support, err
	}
	if enabled != 1 {
		return support, fmt.Errorf("%w: Python's support for debuggers is off there: by PYTHON_DISABLE_REMOTE_DEBUG, "+
			"by -X disable-remote-debug, or since it was built without", ErrUnavailable)
	}
	pending, err := number(mem, support.Pending)
	if err != nil {
		return support, err
	}
	if pending != 0 {
		return support, fmt.Errorf("%w: another debugger's request waits for its main thread", ErrUnavailable)
	}
	return support, nil
}

// post makes the request, in the order of PEP 768: what to execute, that there is something, and
// that the main thread shall look.
func post(mem *target.Memory, support gil.DebugSupport, script string) error {
	if len(script)+1 > support.PathSize {
		return fmt.Errorf("%w: the script's path %q is longer than the %d bytes that it takes",
			ErrUnavailable, script, support.PathSize-1)
	}
	if err := mem.WriteMemory(support.ScriptPath, append([]byte(script), 0)); err != nil {
		return err
	}
	if err := putNumber(mem, support.Pending, 1); err != nil {
		return err
	}
	if err := askToStop(mem, support); err != nil {
		return errors.Join(err, withdraw(mem, support))
	}
	return nil
}

// askToStop sets a bit of the eval breaker. It touches no more than the byte that holds it: above lie
// other things than flags.
func askToStop(mem *target.Memory, support gil.DebugSupport) error {
	var flags [1]byte
	if err := mem.ReadMemory(support.EvalBreaker, flags[:]); err != nil {
		return err
	}
	flags[0] |= pleaseStop
	return mem.WriteMemory(support.EvalBreaker, flags[:])
}

// withdraw takes the request back. The bit of the eval breaker stays: the main thread looks, and
// finds nothing.
func withdraw(mem *target.Memory, support gil.DebugSupport) error {
	return putNumber(mem, support.Pending, 0)
}

func number(mem *target.Memory, addr uint64) (uint32, error) {
	var b [4]byte
	err := mem.ReadMemory(addr, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

func putNumber(mem *target.Memory, addr uint64, n uint32) error {
	return mem.WriteMemory(addr, binary.LittleEndian.AppendUint32(nil, n))
}

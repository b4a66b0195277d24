package keeper

import (
	"fmt"
	"sync"
	"time"
)

// running is the keeper of this process.
var running struct {
	sync.Mutex
	users  int
	keeper *Keeper       // nil: there is none
	failed error         // why not, if one was wanted
	past   time.Duration // CPU time of those before
}

// Use lets the keeper of this process live until done is called, from when on somebody
// needs it. All that was attached by it must have been closed then.
func Use() (done func() error) {
	running.Lock()
	defer running.Unlock()
	running.users++
	return release
}

func release() error {
	running.Lock()
	defer running.Unlock()
	if running.users--; running.users > 0 {
		return nil
	}
	running.failed = nil
	return stopRunning()
}

// stopRunning is called with running locked.
func stopRunning() error {
	if running.keeper == nil {
		return nil
	}
	used, err := running.keeper.stop()
	running.past += used
	running.keeper = nil
	return err
}

// Current returns the keeper of this process, for who is between Use and done. It is started
// if there is none, or none any more.
func Current() (*Keeper, error) {
	running.Lock()
	defer running.Unlock()
	if running.keeper != nil && running.keeper.Ended() {
		_ = stopRunning() // there is nothing to be told
	}
	if running.keeper == nil && running.failed == nil {
		k, err := start()
		if err != nil {
			running.failed = fmt.Errorf("starting a process that keeps the probes: %w", err)
		}
		running.keeper = k
	}
	if running.keeper == nil {
		return nil, running.failed
	}
	return running.keeper, nil
}

// CPU is the CPU time that the keepers of this process have used.
func CPU() time.Duration {
	running.Lock()
	defer running.Unlock()
	if running.keeper == nil {
		return running.past
	}
	return running.past + running.keeper.cpu()
}

// Memory is what the keeper of this process has in memory for itself, in bytes.
func Memory() uint64 {
	running.Lock()
	defer running.Unlock()
	if running.keeper == nil {
		return 0
	}
	return running.keeper.memory()
}

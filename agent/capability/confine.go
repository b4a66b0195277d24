package capability

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Confine gives up every capability that is not in keep, for good: no program that
// this process executes gets one back.
//
// A thread can change its own capabilities only, and in a Go program with C code
// nothing makes all of its threads do so. So one thread gives them up and executes
// this program once more: same process, arguments, environment and open standard
// files, and all threads that it will ever have come from that one. There, Confine
// finds nothing left to give up and returns. Thus it belongs where nothing that
// matters has been done yet.
//
// With an error this process goes on with all that it had.
func Confine(keep Set) error {
	done, err := confined(keep)
	if err != nil {
		return err
	}
	if done {
		ownName()
		return nil
	}
	// Started by the dynamic linker as a program (ld.so stageprof …), it is the linker.
	if _, err := buildinfo.ReadFile("/proc/self/exe"); err != nil {
		return fmt.Errorf("looking at this program, to execute it once more: %w", err)
	}
	err = onThreadOfItsOwn(func() error { return executeAgain(keep, true) })
	if errors.Is(err, unix.EPERM) {
		// A file that has capabilities is not executed where its bounds forbid one of them.
		err = onThreadOfItsOwn(func() error { return executeAgain(keep, false) })
	}
	return err
}

// onThreadOfItsOwn calls a function on a thread that ends with it: nothing else may run
// on one that has given something up.
func onThreadOfItsOwn(f func() error) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // for good
		failed <- f()
	}()
	return <-failed
}

// executeAgain returns only with an error. bounded: the bounding set is narrowed, too.
func executeAgain(keep Set, bounded bool) error {
	if err := confineThread(keep, bounded); err != nil {
		return err
	}
	// Else the new program would try the same again, for ever.
	if done, err := confined(keep); err != nil || !done {
		return errors.Join(errors.New("the kernel goes on granting capabilities"), err)
	}
	err := syscall.Exec("/proc/self/exe", os.Args, os.Environ()) // not by its path, where another one may lie by now
	return fmt.Errorf("executing this program once more: %w", err)
}

// ownName gives the threads the name by which people find them: the kernel has named
// them after the link that the program was executed by.
func ownName() {
	program, err := os.Executable()
	files, globErr := filepath.Glob("/proc/self/task/*/comm")
	if err != nil || globErr != nil {
		return // it is a name only
	}
	for _, file := range files {
		if name, _ := os.ReadFile(file); string(name) == "exe\n" {
			_ = os.WriteFile(file, []byte(filepath.Base(program)), 0)
		}
	}
}

// confined tells whether the calling thread neither has a capability outside of a
// set nor can get one.
func confined(keep Set) (bool, error) {
	// With this, executing a program never adds to what is permitted.
	bound, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("reading no_new_privs: %w", err)
	}
	have, err := ofThread()
	return bound == 1 && keep.Has(have.permitted), err
}

func confineThread(keep Set, bounded bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	have, err := ofThread()
	if err != nil {
		return err
	}
	// Who may not narrow the bounding set is bound by no_new_privs all the same.
	if bounded && have.effective.Has(Of(unix.CAP_SETPCAP)) {
		if err := narrowBounds(keep); err != nil {
			return err
		}
	}
	return sets{have.effective & keep, have.permitted & keep, have.inheritable & keep}.apply()
}

// narrowBounds takes everything that is not in keep out of the calling thread's
// bounding set.
func narrowBounds(keep Set) error {
	for c := 0; ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // this kernel has no more
		}
		if err == nil && !keep.Has(Of(c)) {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		}
		if err != nil {
			return fmt.Errorf("narrowing the bounding set: %w", err)
		}
	}
}

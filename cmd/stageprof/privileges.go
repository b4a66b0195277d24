package main

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"stageprof/agent/capability"
	"stageprof/agent/probe"
)

// confine gives up every capability but those that a command can need, which
// docs/privileges.md explains. It starts the command over, so it comes first.
func confine(log *slog.Logger, keep capability.Set) {
	defer probe.PassOnHold()()
	if err := capability.Confine(keep); err != nil {
		log.Warn("capabilities that are not needed are kept", "reason", err)
	}
}

// toAttach is what attaching takes, and looking at the target. It is taken again
// whenever the target loads a library, or another target comes.
func toAttach(mechanism probe.Mechanism) capability.Set {
	small := capability.Of(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE)
	keep := small | capability.Of(unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH)
	chosen, err := probe.Choose(mechanism)
	if err != nil || chosen == probe.PerfEvent || !capability.Permitted().Has(small) {
		keep |= capability.Of(unix.CAP_SYS_ADMIN) // which also stands for the small ones
	}
	return keep
}

// toWrite is what it takes beyond that to write the files that are named; "" is none.
// They get their names when everything else is done.
func toWrite(names ...string) capability.Set {
	if slices.ContainsFunc(names, isOthers) {
		return capability.Of(unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER)
	}
	return 0
}

// isOthers tells whether a file is to be written that is not this user's own, or is
// in a folder that isn't.
func isOthers(name string) bool {
	if name == "" {
		return false
	}
	if perProcess(name) {
		return true // where the files will be is not known yet
	}
	path := place(name)
	return !isOwn(path) || !isOwn(filepath.Dir(path))
}

// isOwn tells whether this user may write what is at a path, if anything, as its owner.
func isOwn(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(status.Uid) == os.Geteuid() && status.Mode&unix.S_IWUSR != 0
}

// privilegedPorts end where everybody may listen, unless the administrator says otherwise.
const privilegedPorts = 1024

// toListen is what it takes beyond that to serve on an address.
func toListen(address string) capability.Set {
	_, port, _ := net.SplitHostPort(address) // validated
	if n, _ := strconv.Atoi(port); n > 0 && n < privilegedPorts {
		return capability.Of(unix.CAP_NET_BIND_SERVICE)
	}
	return 0
}

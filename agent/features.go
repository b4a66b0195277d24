package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"stageprof/agent/capability"
	"stageprof/agent/probe"
	"stageprof/bpf"
)

// Feature is something that recording uses, and whether it is there.
type Feature struct {
	Name     string
	Present  bool
	Required bool
	Detail   string // when absent: what that means and what to do
	// Privilege marks what the caller may lack rather than the machine.
	Privilege bool
}

// Features probes this kernel and the rights of this process by trying, not by
// comparing versions. They are those for recording the process pid, or any if
// that is 0.
func Features(pid int) []Feature {
	features := append(privileges(pid), kernelFeatures()...)
	for _, f := range features {
		if f.Required && !f.Present {
			return features // the programs could not be tried
		}
	}
	return append(features, feature("stageprof's programs", true, programsLoad(),
		"this kernel refuses them: please report its version and this message"))
}

// programsLoad tries what nothing but trying can tell: whether this kernel's
// verifier accepts the programs.
func programsLoad() error {
	mechanism, err := probe.Choose(probe.Auto)
	if err != nil {
		return err
	}
	spec, err := bpf.LoadProbe()
	if err != nil {
		return err
	}
	probe.Prepare(spec, mechanism)
	var objects bpf.ProbeObjects
	if err := spec.LoadAndAssign(&objects, nil); err != nil {
		return err
	}
	return objects.Close()
}

func kernelFeatures() []Feature {
	return []Feature{
		feature("kernel type information (BTF)", true, haveBTF(),
			"a kernel built with CONFIG_DEBUG_INFO_BTF is needed"),
		feature("task local storage", true, features.HaveMapType(ebpf.TaskStorage),
			"Linux 5.12 or newer is needed"),
		feature("probe cookies", true, features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie),
			"Linux 5.15 or newer is needed"),
		feature("multi-uprobe links", false, features.HaveBPFLinkUprobeMulti(),
			"probes are attached one by one as perf events: slower to attach and remove; Linux 6.6 has them"),
		feature("announced markers", false, haveAnnouncements(),
			"each marker takes a probe, which costs the target nearly twice as much; Linux 6.13 has them, and 7.0 skips some"),
	}
}

func feature(name string, required bool, err error, absent string) Feature {
	f := Feature{Name: name, Present: err == nil, Required: required}
	switch {
	case err == nil:
	case errors.Is(err, os.ErrPermission):
		f.Detail = "can't be tried without the privileges"
	case errors.Is(err, ebpf.ErrNotSupported):
		f.Detail = absent
	default:
		f.Detail = fmt.Sprintf("%s (%v)", absent, err)
	}
	return f
}

func haveBTF() error {
	_, err := btf.LoadKernelSpec()
	return err
}

// privileges are the rights that take effect for every target. What a single
// file of a target takes beyond them is told when it can't be opened.
func privileges(pid int) []Feature {
	namespace := Feature{Name: "host pid namespace", Required: true, Privilege: true, Present: inHostPIDNamespace(),
		Detail: "process ids in BPF are the host's: run on the host, or in a container with the host's pid namespace"}
	if namespace.Present {
		namespace.Detail = ""
	}
	features := []Feature{
		anyCapability("CAP_BPF", "needed to load programs", unix.CAP_BPF, unix.CAP_SYS_ADMIN),
		anyCapability("CAP_PERFMON", "needed to attach probes", unix.CAP_PERFMON, unix.CAP_SYS_ADMIN),
		anyCapability("CAP_SYS_PTRACE", "needed to read the memory and the mapped files of another user's process", unix.CAP_SYS_PTRACE),
		namespace,
	}
	ptrace := &features[2]
	ptrace.Required = pid != 0 && !ptrace.Present && memoryDenied(pid)
	return features
}

// anyCapability is a right that any of some capabilities gives.
func anyCapability(name, why string, of ...int) Feature {
	f := Feature{Name: name, Required: true, Privilege: true,
		Present: capability.Effective()&capability.Of(of...) != 0}
	if !f.Present {
		f.Detail = why + ": run as root, or grant " + name
	}
	return f
}

// memoryDenied tries what the kernel says to reading a process's memory: that
// takes no capability if it is of the same user, has no capabilities of its own,
// and no security module objects.
func memoryDenied(pid int) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err == nil {
		f.Close()
	}
	return errors.Is(err, os.ErrPermission)
}

// hostPIDNamespace is the inode of the initial pid namespace, a constant of the
// kernel (PROC_PID_INIT_INO).
const hostPIDNamespace = "pid:[4026531836]"

func inHostPIDNamespace() bool {
	name, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && name == hostPIDNamespace
}

// checkFeatures returns one error that names everything that is required and
// missing, wrapping ErrPrivileges or ErrKernel.
func checkFeatures(pid int) error {
	if err := checkDescriptors(); err != nil {
		return err
	}
	// Without the privileges, probing the kernel would only tell of them.
	for _, check := range []struct {
		probe func() []Feature
		kind  error
	}{{func() []Feature { return privileges(pid) }, ErrPrivileges}, {kernelFeatures, ErrKernel}} {
		var missing []string
		for _, f := range check.probe() {
			if f.Required && !f.Present {
				missing = append(missing, fmt.Sprintf("%s: %s", f.Name, f.Detail))
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%w: %s", check.kind, strings.Join(missing, "; "))
		}
	}
	return nil
}

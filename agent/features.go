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
// comparing versions.
func Features() []Feature {
	features := append(privileges(), kernelFeatures()...)
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
	}
}

func feature(name string, required bool, err error, absent string) Feature {
	f := Feature{Name: name, Present: err == nil, Required: required}
	switch {
	case err == nil:
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

func privileges() []Feature {
	have := effectiveCapabilities()
	capability := func(name string, bit int, why string) Feature {
		f := Feature{Name: name, Required: true, Privilege: true,
			Present: have&(1<<bit) != 0 || bit != unix.CAP_SYS_PTRACE && have&(1<<unix.CAP_SYS_ADMIN) != 0}
		if !f.Present {
			f.Detail = why + ": run as root, or grant " + name
		}
		return f
	}
	namespace := Feature{Name: "host pid namespace", Required: true, Privilege: true, Present: inHostPIDNamespace(),
		Detail: "process ids in BPF are the host's: run on the host, or in a container with the host's pid namespace"}
	if namespace.Present {
		namespace.Detail = ""
	}
	return []Feature{
		capability("CAP_BPF", unix.CAP_BPF, "needed to load programs"),
		capability("CAP_PERFMON", unix.CAP_PERFMON, "needed to attach probes"),
		capability("CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE, "needed to read the target's memory and the files it has mapped"),
		namespace,
	}
}

func effectiveCapabilities() uint64 {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return 0
	}
	return uint64(data[0].Effective) | uint64(data[1].Effective)<<32
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
func checkFeatures() error {
	// Without the privileges, probing the kernel would only tell of them.
	for _, check := range []struct {
		probe func() []Feature
		kind  error
	}{{privileges, ErrPrivileges}, {kernelFeatures, ErrKernel}} {
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

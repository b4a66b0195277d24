package target

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"stageprof/agent/capability"
)

var capNames = map[int]string{
	unix.CAP_DAC_READ_SEARCH:    "CAP_DAC_READ_SEARCH",
	unix.CAP_SYS_PTRACE:         "CAP_SYS_PTRACE",
	unix.CAP_CHECKPOINT_RESTORE: "CAP_CHECKPOINT_RESTORE",
}

// permissionError explains a refusal: which of the capabilities that allow the action are
// missing or, if none is, what else may refuse it.
func permissionError(action string, have capability.Set, caps ...int) error {
	var missing []string
	for _, c := range caps {
		if !have.Has(capability.Of(c)) {
			missing = append(missing, capNames[c])
		}
	}
	if len(missing) == 0 {
		return fmt.Errorf("%s: %w although the capabilities for it are held: the target may live in another "+
			"user namespace, or a security module (Yama, AppArmor, SELinux) forbids it", action, ErrPermission)
	}
	verb, them := "is", "it"
	if len(missing) > 1 {
		verb, them = "are", "them"
	}
	return fmt.Errorf("%s: %w: %s %s missing; run as root or grant %s", action, ErrPermission,
		strings.Join(missing, " and "), verb, them)
}

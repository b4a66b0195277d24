package probe

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A hold that was passed on is found once, and not passed on by itself. What the
// variable may name otherwise is none.
func TestInheritHold(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a hold takes CAP_SYS_ADMIN")
	}
	made, err := newHold()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(made.dir)
	folder, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if _, err := unix.FcntlInt(uintptr(made.dir), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	t.Setenv(passedOn, strconv.Itoa(made.dir))
	if h := inherit(); h != nil {
		t.Error("it is taken from whoever has started this program")
	}
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]int{
		strconv.Itoa(made.dir): made.dir, strconv.Itoa(int(folder.Fd())): -1, "-1": -1, "1000000": -1, "hold": -1, "": -1,
	} {
		t.Setenv(passedOn, value)
		got := -1
		if h := inherit(); h != nil {
			got = h.dir
		}
		if _, still := os.LookupEnv(passedOn); got != want || still {
			t.Errorf("%q: hold %d, want %d; passed on further: %t", value, got, want, still)
		}
	}
	if flags, err := unix.FcntlInt(uintptr(made.dir), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("what this process executes has the hold, too: flags %#x, %v", flags, err)
	}
}

package calibrate

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// environment marks a process as the child that calls the stubs.
const environment = "STAGEPROF_CALIBRATION_TARGET"

// codeFD is the child's descriptor of the memory that holds the stubs: a page
// of code, then a page of data.
const (
	codeFD    = 3
	pageSize  = 4096
	stubAlign = 64
)

// Target runs the calibration's child if this process is one, and then reports
// true: the caller has to exit. Programs that record call it first in main,
// tests in TestMain.
func Target() bool {
	if os.Getenv(environment) == "" {
		return false
	}
	debug.SetGCPercent(-1)
	done := make(chan error)
	go func() { done <- offMainThread(serve) }()
	if err := <-done; err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return true
}

// offMainThread runs f on a thread that is not the first of the process: a
// filter by process must let its calls through, and kernels exist that compare
// threads instead.
func offMainThread(f func() error) error {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		return f()
	}
	done := make(chan error)
	go func() { done <- offMainThread(f) }()
	return <-done
}

// serve maps the stubs, writes the address of their data page, and then
// answers each line "offset count" with the nanoseconds that so many calls took.
func serve() error {
	code, err := unix.Mmap(codeFD, 0, 2*pageSize, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("mapping the stubs: %w", err)
	}
	base := uintptr(unsafe.Pointer(&code[0]))
	fmt.Println(uint64(base) + pageSize)

	in := bufio.NewReader(os.Stdin)
	for {
		var offset, count int
		if _, err := fmt.Fscanln(in, &offset, &count); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		if offset < 0 || offset >= pageSize || count < 1 {
			return fmt.Errorf("request out of range: %d %d", offset, count)
		}
		begin := time.Now()
		callLoop(base+uintptr(offset), count)
		fmt.Println(time.Since(begin).Nanoseconds())
	}
}

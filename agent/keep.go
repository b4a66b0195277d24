package agent

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"

	"stageprof/agent/keeper"
	"stageprof/agent/probe"
	"stageprof/agent/target"
)

// attacher is what puts probes in: a keeper, or this process by itself.
type attacher interface {
	Entry(path string, program *ebpf.Program, points []probe.Point) (io.Closer, error)
	Return(path string, program *ebpf.Program, points []probe.Point) (io.Closer, error)
}

// attachment is a method of an attacher.
type attachment func(attacher, string, *ebpf.Program, []probe.Point) (io.Closer, error)

// chooseAttacher prefers a keeper. Without one this process does it, and does the target no
// harm either, unless it is killed meanwhile.
func (s *Session) chooseAttacher() {
	if s.keeperDone == nil {
		s.keeperDone = keeper.Use()
	}
	own := probe.Attacher{Mechanism: s.mechanism, PID: s.only, Busy: s.meter.busy(), Held: true}
	k, err := keeper.Current()
	if err != nil {
		s.warnOnce(fmt.Sprintf("should stageprof be killed, probes may stay in the process: %v", err))
		s.attacher = own
		return
	}
	s.attacher = keeper.Attacher{Keeper: k, By: own}
}

// attach puts a program on points of a file of which the target has some mappings.
// The kernel may take them off by itself, a moment after it was told to (see
// [probe.Attacher]): closing the result waits for that, as far as it can be seen.
func (s *Session) attach(how attachment, file *target.File, mappings []target.Mapping, program *ebpf.Program, points []probe.Point) (io.Closer, error) {
	change := s.changeOf(file, mappings, points)
	l, err := how(s.attacher, file.AttachPath(), program, points)
	if errors.Is(err, keeper.ErrEnded) { // what it may have left there the next one takes off, too
		first := err
		s.chooseAttacher()
		if l, err = how(s.attacher, file.AttachPath(), program, points); err != nil {
			err = errors.Join(first, err)
		}
	}
	if err != nil || change == nil {
		return l, err
	}
	return attached{l, change, s}, nil
}

package timeline

import (
	"bufio"
	"io"
	"path"

	"google.golang.org/protobuf/encoding/protowire"

	"stageprof/recording"
)

// Numbers of fields in Perfetto's public protos/perfetto/trace/perfetto_trace.proto,
// as MESSAGE_FIELD, in the order in which they are used.
const (
	tracePacket = 1

	packetClockSnapshot   = 6
	packetTimestamp       = 8
	packetSequence        = 10
	packetTrackEvent      = 11
	packetInternedData    = 12
	packetSequenceFlags   = 13
	packetTrackDescriptor = 60

	clockSnapshotClocks = 1
	clockID             = 1
	clockTimestamp      = 2

	trackUUID          = 1
	trackName          = 2
	trackProcess       = 3
	trackThread        = 4
	trackParent        = 5
	trackChildOrdering = 11
	trackOrderRank     = 12
	trackMerging       = 15

	processPID     = 1
	processCmdline = 2
	processName    = 6

	threadPID  = 1
	threadTID  = 2
	threadName = 5

	eventCategories       = 3
	eventAnnotations      = 4
	eventType             = 9
	eventName             = 10
	eventTrack            = 11
	eventFlows            = 47
	eventTerminatingFlows = 48

	annotationName = 1
	annotationUint = 3
	annotationText = 17

	internedCategories      = 1
	internedNames           = 2
	internedAnnotationNames = 3
	internedTexts           = 29
	internedID              = 1 // of all four kinds
	internedText            = 2
)

// Values of the enumerations in it.
const (
	clockRealtime  = 1
	clockMonotonic = 3
	clockBoottime  = 6

	sequenceCleared = 1 // this packet begins the sequence's interned data
	sequenceNeeds   = 2 // this packet refers to it

	sliceBegin = 1
	sliceEnd   = 2

	orderingExplicit = 3
	mergingNone      = 2
)

// sequence is the number of the only sequence of packets.
const sequence = 1

// message is a message of Protocol Buffers in the making.
type message []byte

func (m *message) varint(field protowire.Number, v uint64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), v)
}

func (m *message) fixed64(field protowire.Number, v uint64) {
	*m = protowire.AppendFixed64(protowire.AppendTag(*m, field, protowire.Fixed64Type), v)
}

func (m *message) bytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

func (m *message) text(field protowire.Number, s string) {
	*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
}

// Perfetto writes the timeline of a Recording as a trace of Perfetto's. Without
// one the error is ErrNone.
func Perfetto(w io.Writer, r *recording.Recording) error {
	p := perfetto{Recording: r, w: bufio.NewWriter(w), interned: map[internedKey]uint64{}, threads: map[int]bool{}}
	if r.Timeline != nil {
		p.head()
	}
	if err := walk(r, &p); err != nil {
		return err
	}
	p.close(noTime)
	if p.err != nil {
		return p.err
	}
	return p.w.Flush()
}

// noTime is after all others.
const noTime = ^uint64(0)

// perfetto is the sink that writes Perfetto's traces. Writing goes on after an
// error, to nowhere: it is reported with the next track.
type perfetto struct {
	*recording.Recording
	w   *bufio.Writer
	err error

	interned map[internedKey]uint64
	fresh    message // interned data that goes out with the next packet
	flags    uint64  // of the next packet
	threads  map[int]bool
	uuid     uint64   // of the track
	open     []uint64 // when its open slices end
	packet   message  // these three are used again and again
	event    message
	part     message
}

type internedKey struct {
	field protowire.Number
	text  string
}

// intern returns the number of a text, which it has from its first use on.
func (p *perfetto) intern(field protowire.Number, text string) uint64 {
	key := internedKey{field, text}
	id, ok := p.interned[key]
	if !ok {
		id = uint64(len(p.interned)) + 1
		p.interned[key] = id
		var entry message
		entry.varint(internedID, id)
		entry.text(internedText, text)
		p.fresh.bytes(field, entry)
	}
	return id
}

// write puts a packet into the trace.
func (p *perfetto) write(packet message) {
	if p.err != nil {
		return
	}
	var head message
	head = protowire.AppendTag(head, tracePacket, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(packet)))
	if _, p.err = p.w.Write(head); p.err == nil {
		_, p.err = p.w.Write(packet)
	}
}

// head writes the clocks and the process.
func (p *perfetto) head() {
	p.flags = sequenceCleared
	var clocks message
	for _, c := range []struct{ id, time uint64 }{
		{clockBoottime, p.Window.StartNS}, {clockMonotonic, p.Window.StartNS}, {clockRealtime, uint64(p.Window.Start.UnixNano())},
	} {
		var clock message
		clock.varint(clockID, c.id)
		clock.varint(clockTimestamp, c.time)
		clocks.bytes(clockSnapshotClocks, clock)
	}
	var packet message
	packet.bytes(packetClockSnapshot, clocks)
	packet.varint(packetTimestamp, p.Window.StartNS)
	packet.varint(packetSequence, sequence)
	p.write(packet)

	var process, track message
	process.varint(processPID, uint64(p.Target.PID))
	for _, word := range p.Target.Cmdline {
		process.text(processCmdline, word)
	}
	process.text(processName, path.Base(p.Target.Exe))
	track.varint(trackUUID, processUUID)
	track.bytes(trackProcess, process)
	p.describe(track)
}

func (p *perfetto) describe(track message) {
	var packet message
	packet.bytes(packetTrackDescriptor, track)
	packet.varint(packetSequence, sequence)
	p.write(packet)
}

const processUUID = 1

// uuidOf numbers the tracks.
func uuidOf(t track) uint64 {
	return processUUID + uint64(t.thread+1)*uint64(kinds) + uint64(t.kind) + 1
}

// threadUUID is the number of a thread's own track, which holds its stages.
func threadUUID(thread int) uint64 { return uuidOf(track{thread, stages}) }

func (p *perfetto) track(t track) error {
	p.close(noTime)
	p.uuid = uuidOf(t)
	parent := uint64(processUUID)
	if t.thread >= 0 {
		p.thread(t.thread)
		parent = threadUUID(t.thread)
	}
	if t.thread < 0 || t.kind != stages {
		var track message
		track.varint(trackUUID, p.uuid)
		track.text(trackName, kindNames[t.kind])
		track.varint(trackParent, parent)
		track.varint(trackOrderRank, uint64(t.kind))
		track.varint(trackMerging, mergingNone)
		p.describe(track)
	}
	return p.err
}

// thread describes a thread before its first track.
func (p *perfetto) thread(id int) {
	if p.threads[id] {
		return
	}
	p.threads[id] = true
	t := &p.Threads[id]
	var thread, track message
	thread.varint(threadPID, uint64(p.Target.PID))
	thread.varint(threadTID, uint64(t.TID))
	thread.text(threadName, t.Name)
	track.varint(trackUUID, threadUUID(id))
	track.varint(trackParent, processUUID)
	track.bytes(trackThread, thread)
	track.varint(trackChildOrdering, orderingExplicit)
	p.describe(track)
}

func (p *perfetto) slice(s *slice) error {
	p.close(s.begin)
	p.open = append(p.open, s.end)
	event := p.event[:0]
	for _, category := range s.categories {
		event.varint(eventCategories, p.intern(internedCategories, category))
	}
	for i := range s.args {
		p.annotate(&event, &s.args[i])
	}
	event.varint(eventType, sliceBegin)
	event.varint(eventName, p.intern(internedNames, s.name))
	event.varint(eventTrack, p.uuid)
	if s.flowTo != 0 {
		event.fixed64(eventFlows, s.flowTo)
	}
	for _, flow := range s.flowsFrom {
		event.fixed64(eventTerminatingFlows, flow)
	}
	p.event = event
	p.put(s.begin, event)
	return p.err
}

func (p *perfetto) annotate(event *message, a *arg) {
	part := p.part[:0]
	part.varint(annotationName, p.intern(internedAnnotationNames, a.name))
	if a.isText {
		part.varint(annotationText, p.intern(internedTexts, a.text))
	} else {
		part.varint(annotationUint, a.number)
	}
	event.bytes(eventAnnotations, part)
	p.part = part
}

// close ends the slices of the track that have ended by a time.
func (p *perfetto) close(by uint64) {
	for len(p.open) > 0 && p.open[len(p.open)-1] <= by {
		event := p.event[:0]
		event.varint(eventType, sliceEnd)
		event.varint(eventTrack, p.uuid)
		p.event = event
		p.put(p.open[len(p.open)-1], event)
		p.open = p.open[:len(p.open)-1]
	}
}

// put writes a packet with an event and what of the interned data is new.
func (p *perfetto) put(time uint64, event message) {
	packet := p.packet[:0]
	packet.varint(packetTimestamp, time)
	packet.varint(packetSequence, sequence)
	packet.bytes(packetTrackEvent, event)
	if len(p.fresh) > 0 {
		packet.bytes(packetInternedData, p.fresh)
		p.fresh = p.fresh[:0]
	}
	packet.varint(packetSequenceFlags, p.flags|sequenceNeeds)
	p.flags = 0
	p.packet = packet
	p.write(packet)
}

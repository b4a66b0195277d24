package timeline

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"stageprof/recording"
)

// Chrome writes the timeline of a Recording in Chrome's format of trace events,
// as JSON. Without one the error is ErrNone. The format knows threads only, so
// that each track is a thread of its own there, and says by its name whose it is.
func Chrome(w io.Writer, r *recording.Recording) error {
	if r.Timeline == nil {
		return ErrNone
	}
	c := chrome{Recording: r, w: bufio.NewWriter(w)}
	if err := c.head(); err != nil {
		return err
	}
	if err := walk(r, &c); err != nil {
		return err
	}
	if _, err := c.w.WriteString("\n]}\n"); err != nil {
		return err
	}
	return c.w.Flush()
}

// chrome is the sink that writes Chrome's trace events.
type chrome struct {
	*recording.Recording
	w   *bufio.Writer
	tid int // of the track
}

// chromeEvent is one trace event.
type chromeEvent struct {
	Phase    string         `json:"ph"`
	PID      int            `json:"pid"`
	TID      int            `json:"tid"`
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Time     json.Number    `json:"ts,omitempty"`
	Duration json.Number    `json:"dur,omitempty"`
	ID       uint64         `json:"id,omitempty"`
	Binding  string         `json:"bp,omitempty"`
	Colour   string         `json:"cname,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// The phases: complete slice, metadata, begin and end of a flow.
const (
	phaseSlice     = "X"
	phaseMetadata  = "M"
	phaseFlowBegin = "s"
	phaseFlowEnd   = "f"
)

func (c *chrome) head() error {
	start, err := json.Marshal(c.Window.Start)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c.w, `{"displayTimeUnit":"ns","otherData":{"start":%s},"traceEvents":[`+"\n", start); err != nil {
		return err
	}
	return c.encode(&chromeEvent{Phase: phaseMetadata, Name: "process_name", Args: map[string]any{"name": c.Target.Comm}})
}

// put writes an event behind another one.
func (c *chrome) put(e *chromeEvent) error {
	if _, err := c.w.WriteString(",\n"); err != nil {
		return err
	}
	return c.encode(e)
}

func (c *chrome) encode(e *chromeEvent) error {
	e.PID = c.Target.PID
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = c.w.Write(b)
	return err
}

func (c *chrome) track(t track) error {
	c.tid = (t.thread+1)*int(kinds) + int(t.kind) + 1
	name := "process: " + kindNames[t.kind]
	if t.thread >= 0 {
		thread := &c.Threads[t.thread]
		name = fmt.Sprintf("%s %d: %s", thread.Name, thread.TID, kindNames[t.kind])
	}
	if err := c.put(&chromeEvent{Phase: phaseMetadata, TID: c.tid, Name: "thread_name", Args: map[string]any{"name": name}}); err != nil {
		return err
	}
	return c.put(&chromeEvent{Phase: phaseMetadata, TID: c.tid, Name: "thread_sort_index", Args: map[string]any{"sort_index": c.tid}})
}

func (c *chrome) slice(s *slice) error {
	e := chromeEvent{
		Phase: phaseSlice, TID: c.tid, Name: s.name, Category: strings.Join(s.categories, ","),
		Time: c.time(s.begin), Duration: micros(s.end - s.begin),
	}
	if s.held {
		e.Colour = "terrible"
	}
	if len(s.args) > 0 {
		e.Args = map[string]any{}
	}
	for _, a := range s.args {
		if a.isText {
			e.Args[a.name] = a.text
		} else {
			e.Args[a.name] = a.number
		}
	}
	if err := c.put(&e); err != nil {
		return err
	}
	return c.flows(s)
}

func (c *chrome) flows(s *slice) error {
	flow := chromeEvent{TID: c.tid, Name: "operation", Category: "flow", Time: c.time(s.begin)}
	if s.flowTo != 0 {
		flow.Phase, flow.ID = phaseFlowBegin, s.flowTo
		if err := c.put(&flow); err != nil {
			return err
		}
	}
	for _, id := range s.flowsFrom {
		// It ends at the slice that encloses this moment, not at the next one.
		flow.Phase, flow.ID, flow.Binding = phaseFlowEnd, id, "e"
		if err := c.put(&flow); err != nil {
			return err
		}
	}
	return nil
}

// time is since the window's start.
func (c *chrome) time(ns uint64) json.Number {
	if ns < c.Window.StartNS { // in no recording
		return "-" + micros(c.Window.StartNS-ns)
	}
	return micros(ns - c.Window.StartNS)
}

// micros writes nanoseconds as microseconds, all digits.
func micros(ns uint64) json.Number {
	return json.Number(fmt.Sprintf("%d.%03d", ns/1000, ns%1000))
}

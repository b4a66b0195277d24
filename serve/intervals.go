package serve

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"stageprof/correlate"
	"stageprof/export"
	"stageprof/recording"
)

// Export says where the profile of each interval of a recording goes.
type Export struct {
	Every  time.Duration
	Push   func(*correlate.Ledger) (export.Push, error)
	Sender *export.Sender
}

// intervals hands on what happens in one session, in intervals without gaps: the
// first begins with the recording, the last ends with it.
type intervals struct {
	Export
	log    *slog.Logger
	before *recording.Recording // where the next interval begins, nil at first
}

// watch waits for the end of a session, whose intervals it hands on meanwhile.
func (i *intervals) watch(ctx context.Context, session Session) (*recording.Recording, error) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		i.tick(session, ended)
	}()
	final, err := session.Wait(ctx)
	close(ended)
	<-done
	if final != nil {
		i.next(final)
	}
	return final, err
}

func (i *intervals) tick(session Session, ended <-chan struct{}) {
	ticker := time.NewTicker(i.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		now, err := take(session)
		if err != nil {
			i.log.Warn("an interval was not read; the next one has it", "error", err)
			continue
		}
		if now.Window.End == recording.EndOpen { // otherwise it is the last one
			i.next(now)
		}
	}
}

// next hands on what has happened since the last time.
func (i *intervals) next(now *recording.Recording) {
	last := now.Window.End != recording.EndOpen
	ledger, err := i.since(now)
	var push export.Push
	if err == nil {
		push, err = i.Push(ledger)
	}
	switch {
	case err != nil && last:
		i.log.Warn("no profile was made of the last interval: it is not sent", "error", err)
		return
	case err != nil:
		i.log.Warn("no profile was made of an interval; the next one has it", "error", err)
		return
	case len(push.Profile.Sample) > 0:
		i.Sender.Add(push)
	case len(ledger.Losses) > 0 && last:
		i.log.Warn("the last interval had losses and no calls: it is not sent", "lost", lossesText(ledger.Losses))
	case len(ledger.Losses) > 0:
		return // the next one has them
	}
	i.before = now
}

// since joins what has happened since the last time.
func (i *intervals) since(now *recording.Recording) (*correlate.Ledger, error) {
	r := now
	if i.before != nil {
		var err error
		if r, err = correlate.Since(i.before, now); err != nil {
			return nil, err
		}
	}
	return correlate.Build(withoutRunning(r)), nil
}

// lossesText is for a line of a log.
func lossesText(losses []recording.Loss) string {
	var texts []string
	for _, l := range losses {
		texts = append(texts, fmt.Sprintf("%d %s: %s", l.Count, l.Kind, l.Reason))
	}
	return strings.Join(texts, ", ")
}

// withoutRunning leaves calls that are running when an interval ends to the next
// one. In the last one they are lost.
func withoutRunning(r *recording.Recording) *recording.Recording {
	if r.Window.End != recording.EndOpen {
		return r
	}
	returned := *r
	returned.Losses = nil
	for _, loss := range r.Losses {
		if loss.Reason != recording.LossInFlight {
			returned.Losses = append(returned.Losses, loss)
		} else if r.Seen != nil {
			returned.Seen = &recording.Seen{Calls: r.Seen.Calls - min(loss.Count, r.Seen.Calls)}
		}
	}
	return &returned
}

package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/pprof/profile"
)

// Name is what the profiles are called where types of profiles have names:
// Pyroscope shows e.g. "cuda:wall:nanoseconds:calls:count".
const Name = "cuda"

// Push is a profile to be sent.
type Push struct {
	Profile *profile.Profile
	Service string  // what was profiled
	Labels  []Label // of the whole profile; names in Prometheus's grammar, each once
	Version string  // of stageprof
}

// Label is a name with its value.
type Label struct{ Name, Value string }

// raw is the profile as a pprof file.
func (p Push) raw() ([]byte, error) {
	var b bytes.Buffer
	if err := p.Profile.Write(&b); err != nil {
		return nil, fmt.Errorf("encoding the profile: %w", err)
	}
	return b.Bytes(), nil
}

// series are the labels that name a time series in Prometheus's way.
func (p Push) series() []Label {
	return append([]Label{{"__name__", Name}, {"service_name", p.Service}}, p.Labels...)
}

// Receiver is a server that takes profiles.
type Receiver interface {
	// Push sends a profile once.
	Push(ctx context.Context, p Push) error
}

// ErrDenied: the receiver wants to know who sends.
var ErrDenied = errors.New("it asks for a token, or for headers of its own")

// temporary is an error that may be gone at the next try.
type temporary struct {
	error
	after time.Duration // what the receiver asks to wait, 0 if it does not say
}

func (t *temporary) Unwrap() error { return t.error }

// Backoff is how long is waited between tries: First, and twice as long each
// time, up to Max.
type Backoff struct{ First, Max time.Duration }

// Deliver pushes until that worked, and returns how many tries it took. It gives
// up when the receiver refuses for good or ctx ends.
func Deliver(ctx context.Context, r Receiver, p Push, b Backoff) (tries int, err error) {
	wait := b.First
	for {
		tries++
		err = r.Push(ctx, p)
		var again *temporary
		if !errors.As(err, &again) {
			return tries, err
		}
		// Spread, so that senders that failed together do not come back together.
		pause := max(again.after, wait/2+rand.N(wait/2+1))
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		if ctx.Err() != nil { // also if both have come
			return tries, fmt.Errorf("giving up after %d tries (%w): %w", tries, context.Cause(ctx), err)
		}
		wait = min(2*wait, b.Max)
	}
}

package export

import (
	"context"
	"strings"
)

// Pyroscope pushes by Pyroscope's Connect API.
type Pyroscope struct {
	URL  string // of the server, without the path of the API
	Auth Auth
}

// Push sends a profile once.
func (r Pyroscope) Push(ctx context.Context, p Push) error {
	raw, err := p.raw()
	if err != nil {
		return err
	}
	url := strings.TrimSuffix(r.URL, "/") + "/push.v1.PusherService/Push"
	_, err = post(ctx, url, "application/proto", pushRequest(p.series(), raw), r.Auth)
	return err
}

// pushRequest is a push.v1.PushRequest of one series (1), which has labels (1) and
// samples (2), whose raw_profile is 1.
func pushRequest(labels []Label, raw []byte) []byte {
	series := pairs(nil, 1, labels)
	series = text(series, 2, text([]byte(nil), 1, raw))
	return text([]byte(nil), 1, series)
}

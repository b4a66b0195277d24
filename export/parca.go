package export

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const writeRaw = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw"

// Parca pushes by Parca's gRPC API.
type Parca struct {
	URL  string // http://HOST:PORT, or https for TLS
	Auth Auth
}

// Push sends a profile once.
func (r Parca) Push(ctx context.Context, p Push) error {
	raw, err := p.raw()
	if err != nil {
		return err
	}
	address, err := url.Parse(r.URL)
	if err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	transport := insecure.NewCredentials()
	if address.Scheme == "https" {
		transport = credentials.NewTLS(nil)
	}
	conn, err := grpc.NewClient(address.Host, grpc.WithTransportCredentials(transport), grpc.WithDisableRetry())
	if err != nil {
		return fmt.Errorf("sending to %s: %w", r.URL, err)
	}
	answer := new([]byte)
	err = conn.Invoke(r.Auth.outgoing(ctx), writeRaw, writeRawRequest(p.parcaSeries(), raw), answer, grpc.ForceCodec(bytesCodec{}))
	return errors.Join(r.refusal(err), conn.Close())
}

func (a Auth) outgoing(ctx context.Context) context.Context {
	if a.Token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.Token)
	}
	for _, h := range a.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(h.Name), h.Value)
	}
	return ctx
}

// parcaSeries are the labels in Parca's way, which has no word for a service.
func (p Push) parcaSeries() []Label {
	return append([]Label{{"__name__", Name}, {"job", p.Service}}, p.Labels...)
}

func (r Parca) refusal(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	told := fmt.Errorf("%s answers %s: %s", r.URL, s.Code(), s.Message())
	switch s.Code() {
	case codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.DeadlineExceeded:
		return &temporary{error: told}
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("%w: %w", told, ErrDenied)
	}
	return told
}

// writeRawRequest is a WriteRawRequest of one series (2), which has a set of labels
// (1, each 1 in it) and samples (2), whose raw_profile is 1.
func writeRawRequest(labels []Label, raw []byte) []byte {
	series := text([]byte(nil), 1, pairs(nil, 1, labels))
	series = text(series, 2, text([]byte(nil), 1, raw))
	return text([]byte(nil), 2, series)
}

// bytesCodec sends messages that are encoded already.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) ([]byte, error) {
	if b, ok := v.([]byte); ok {
		return b, nil
	}
	return nil, fmt.Errorf("a %T is not an encoded message", v)
}

func (bytesCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a %T does not take an encoded message", v)
	}
	*b = append([]byte(nil), data...) // grpc uses its buffer again
	return nil
}

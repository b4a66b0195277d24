package export

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Auth is what every request carries beside the profile.
type Auth struct {
	Token   string // a bearer token, "" for none
	Headers []Label
}

func (a Auth) add(h http.Header) {
	if a.Token != "" {
		h.Set("Authorization", "Bearer "+a.Token)
	}
	for _, header := range a.Headers {
		h.Set(header.Name, header.Value)
	}
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// client does not follow redirects: they would turn the POST into a GET, and
// carry the token to another host.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// post sends a protobuf message and returns the body of the answer.
func post(ctx context.Context, url, contentType string, message []byte, auth Auth) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(message))
	if err != nil {
		return nil, fmt.Errorf("sending: %w", err)
	}
	auth.add(request.Header)
	request.Header.Set("Content-Type", contentType)
	response, err := client.Do(request)
	if err != nil {
		return nil, &temporary{error: fmt.Errorf("sending: %w", err)}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, &temporary{error: fmt.Errorf("reading the answer of %s: %w", url, err)}
	}
	return body, refusal(response, body)
}

// refusal is the error that a status stands for, nil for those of success.
func refusal(r *http.Response, body []byte) error {
	if r.StatusCode >= 200 && r.StatusCode < 300 {
		return nil
	}
	err := fmt.Errorf("%s answers %s%s", r.Request.URL.Redacted(), r.Status, explanation(r, body))
	switch r.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(r.Header.Get("Retry-After")) // a date is left to the backoff
		return &temporary{error: err, after: time.Duration(max(seconds, 0)) * time.Second}
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", err, ErrDenied)
	}
	return err
}

// explanation is what the answer says in words: its first line of text.
func explanation(r *http.Response, body []byte) string {
	if to := r.Header.Get("Location"); to != "" {
		return ": it is at " + strconv.Quote(to)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	if line == "" {
		return ""
	}
	if len(line) > 300 {
		line = line[:300] + "…"
	}
	return ": " + strconv.Quote(line)
}

package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// guard keeps out who must not ask.
type guard struct {
	hosts []string
	token string
}

// protected refuses requests that a web page of somebody else can make a browser
// send, and tells browsers what the answers may be used for.
func (g *guard) protected(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cache-Control", "no-store")
		switch {
		case !g.knows(r.Host):
			http.Error(w, "the Host header names another machine; --allow-host makes a name known", http.StatusMisdirectedRequest)
		case foreign(r):
			http.Error(w, "the request comes from another site: links from there lead to / only", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// knows tells whether a Host header names this machine. An address does, since no
// name that others control has led here.
func (g *guard) knows(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || slices.ContainsFunc(g.hosts, func(known string) bool { return strings.EqualFold(known, name) })
}

// foreign tells whether a page of another site made the browser ask, other than
// by a link to the page: what stands behind others, such as a profile of an hour,
// is not for a frame or a form elsewhere to start. Only browsers say.
func foreign(r *http.Request) bool {
	switch h := r.Header; h.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.URL.Path != "/" || h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document"
	}
	return false
}

// authorized asks for the token, if there is one.
func (g *guard) authorized(next http.Handler) http.Handler {
	if g.token == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !equal(tokenOf(r), g.token) {
			w.Header().Set("WWW-Authenticate", `Basic realm="stageprof", charset="UTF-8"`)
			http.Error(w, "a token is needed: as a bearer token, or as the password of any user", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// equal compares in a time that depends on neither.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

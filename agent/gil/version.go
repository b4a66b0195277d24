package gil

import (
	"fmt"
	"regexp"
	"strconv"
)

// version is a CPython version. micro is -1 when only major and minor are known.
type version struct {
	major, minor, micro int
	suffix              string // "rc1", "a2+", ...
}

func (v version) String() string {
	if v.micro < 0 {
		return fmt.Sprintf("%d.%d", v.major, v.minor)
	}
	return fmt.Sprintf("%d.%d.%d%s", v.major, v.minor, v.micro, v.suffix)
}

// before reports whether v is older than major.minor.
func (v version) before(major, minor int) bool {
	return v.major < major || v.major == major && v.minor < minor
}

// versionFromHex reads PY_VERSION_HEX: major, minor, micro, one byte each, then four bits of release
// level (a, b, c for a candidate, f for final) and four bits of serial number.
func versionFromHex(hex uint64) (version, bool) {
	if hex>>32 != 0 {
		return version{}, false
	}
	v := version{major: int(hex >> 24), minor: int(hex >> 16 & 0xff), micro: int(hex >> 8 & 0xff)}
	switch level, serial := hex>>4&0xf, hex&0xf; level {
	case 0xa:
		v.suffix = fmt.Sprintf("a%d", serial)
	case 0xb:
		v.suffix = fmt.Sprintf("b%d", serial)
	case 0xc:
		v.suffix = fmt.Sprintf("rc%d", serial)
	case 0xf:
	default:
		return version{}, false
	}
	return v, v.plausible()
}

// plausible tells a version that CPython has, or may yet have, from arbitrary bytes.
func (v version) plausible() bool {
	return (v.major == 2 || v.major == 3) && v.minor < 100
}

// banner matches what Py_GetVersion composes in a static buffer when the interpreter starts:
// "3.10.13 (main, May  9 2026, 10:11:12) [GCC 12.2.0]"; distributors put their name before the
// parenthesis and older versions a newline before the bracket.
var banner = regexp.MustCompile(
	`([23])\.(\d{1,2})\.(\d{1,3})((?:(?:a|b|c|rc)\d{1,2})?\+?) [^\x00]{0,80}\([^\x00]{1,100}\) ?\n?\[`)

// bannerLength is the size of that buffer: no banner is longer.
const bannerLength = 250

func versionFromBanner(b []byte) (version, bool) {
	m := banner.FindSubmatch(b)
	if m == nil {
		return version{}, false
	}
	return versionFromText(string(m[1]), string(m[2]), string(m[3]), string(m[4]))
}

// fileName matches libpython3.10.so.1.0, python3.10, libpython3.7m.so.
var fileName = regexp.MustCompile(`python([23])\.(\d{1,2})`)

func versionFromFileName(base string) (version, bool) {
	m := fileName.FindStringSubmatch(base)
	if m == nil {
		return version{}, false
	}
	return versionFromText(m[1], m[2], "-1", "")
}

func versionFromText(major, minor, micro, suffix string) (version, bool) {
	v := version{suffix: suffix}
	for _, part := range []struct {
		text string
		to   *int
	}{{major, &v.major}, {minor, &v.minor}, {micro, &v.micro}} {
		n, err := strconv.Atoi(part.text)
		if err != nil {
			return version{}, false
		}
		*part.to = n
	}
	return v, v.plausible()
}

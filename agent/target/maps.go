package target

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxMaps    = 256 << 20 // bytes of /proc/PID/maps: some two million mappings
	mapsBuffer = 64 << 10
)

// Mapping is one line of /proc/PID/maps.
type Mapping struct {
	Start, End uint64 // addresses; End is exclusive
	Offset     uint64 // of Start in the file, bytes
	Read       bool
	Write      bool
	Exec       bool
	Private    bool
	Dev        uint64 // device of the file, as in st_dev; 0 without a file
	Inode      uint64 // 0 without a file
	Path       string // as the target's namespace sees it, "[heap]" and the like, or ""
	Deleted    bool   // the path has been removed or replaced since
}

// fileID identifies a file among those that exist at the same time.
type fileID struct{ dev, inode uint64 }

func (m Mapping) id() fileID { return fileID{m.Dev, m.Inode} }

// Mappings returns the target's mappings in ascending order, from one pass over
// /proc/PID/maps. Mappings that come or go during the pass may or may not be in it; those that
// exist all the while are. See the package comment for what this costs the target.
func (p *Process) Mappings() ([]Mapping, error) {
	const action = "reading the memory mappings"
	f, err := p.dir.open("maps", unix.O_RDONLY)
	if err != nil {
		return nil, p.fail(action, err, unix.CAP_SYS_PTRACE)
	}
	defer f.Close()
	ms, err := parseMaps(f)
	if err != nil {
		return nil, p.fail(action, err, unix.CAP_SYS_PTRACE)
	}
	if len(ms) == 0 { // only a process that is exiting has none
		return nil, p.fail(action, unix.ESRCH)
	}
	return ms, nil
}

// parseMaps reads the format of /proc/PID/maps.
func parseMaps(r io.Reader) ([]Mapping, error) {
	var out []Mapping
	paths := make(map[string]string) // mappings of one file share the string
	buf := make([]byte, 0, mapsBuffer)
	for total := 0; ; {
		if len(buf) == cap(buf) {
			return nil, fmt.Errorf("parsing maps: line longer than %d bytes", cap(buf))
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if total += n; total > maxMaps {
			return nil, fmt.Errorf("parsing maps: longer than %d bytes", maxMaps)
		}
		rest := buf
		for {
			line, after, ok := bytes.Cut(rest, []byte{'\n'})
			if !ok {
				break
			}
			m, ok := parseMapping(line, paths)
			if !ok {
				return nil, fmt.Errorf("parsing maps: bad line %q", clip(line))
			}
			out = append(out, m)
			rest = after
		}
		buf = buf[:copy(buf[:cap(buf)], rest)]
		if err == io.EOF {
			if len(buf) > 0 {
				return nil, fmt.Errorf("parsing maps: line %q does not end", clip(buf))
			}
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

const deletedSuffix = " (deleted)"

// parseMapping reads one line: start-end perms offset major:minor inode path.
func parseMapping(line []byte, paths map[string]string) (m Mapping, ok bool) {
	c := cursor{rest: line}
	m.Start = c.number(16, '-')
	m.End = c.number(16, ' ')
	perms := c.word(4)
	m.Offset = c.number(16, ' ')
	major := c.number(16, ':')
	minor := c.number(16, ' ')
	m.Inode = c.number(10, ' ')
	if c.bad || m.End <= m.Start || major > 0xfff || minor > 0xfffff {
		return Mapping{}, false
	}
	m.Read, m.Write, m.Exec, m.Private = perms[0] == 'r', perms[1] == 'w', perms[2] == 'x', perms[3] == 'p'
	m.Dev = unix.Mkdev(uint32(major), uint32(minor))
	path := bytes.TrimLeft(c.rest, " ")
	if m.Inode != 0 {
		path, m.Deleted = bytes.CutSuffix(path, []byte(deletedSuffix))
	}
	s, seen := paths[string(path)]
	if !seen {
		s = strings.ReplaceAll(string(path), `\012`, "\n") // the one character that the kernel escapes
		paths[string(path)] = s
	}
	m.Path = s
	return m, true
}

// cursor takes fields off the front of a line and remembers whether one was malformed.
type cursor struct {
	rest []byte
	bad  bool
}

// number takes digits and the delimiter behind them. The last field of a line may lack it.
func (c *cursor) number(base uint64, delim byte) uint64 {
	var v uint64
	for i, b := range c.rest {
		d, isDigit := digit(b)
		switch {
		case b == delim && i > 0:
			c.rest = c.rest[i+1:]
			return v
		case !isDigit || d >= base || v > (1<<64-1-d)/base:
			c.bad = true
			return 0
		}
		v = v*base + d
	}
	c.bad = c.bad || len(c.rest) == 0 || delim != ' '
	c.rest = nil
	return v
}

func digit(b byte) (uint64, bool) {
	switch {
	case b >= '0' && b <= '9':
		return uint64(b - '0'), true
	case b >= 'a' && b <= 'f':
		return uint64(b-'a') + 10, true
	}
	return 0, false
}

// word takes n bytes and the space behind them.
func (c *cursor) word(n int) []byte {
	if len(c.rest) <= n || c.rest[n] != ' ' {
		c.bad = true
		return make([]byte, n)
	}
	w := c.rest[:n]
	c.rest = c.rest[n+1:]
	return w
}

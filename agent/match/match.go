package match

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
)

var (
	// ErrSyntax: it is no regular expression.
	ErrSyntax = errors.New("it is no regular expression")
	// ErrUnsupported: the expression asks for what a table can't tell.
	ErrUnsupported = errors.New("it uses what is not supported here")
	// ErrTooLarge: the expression's table has more cells than there is room for.
	ErrTooLarge = errors.New("it is too large")
)

// Table decides about names. A state is the index of its row in Next.
type Table struct {
	Class  [256]byte // of a byte: its column
	Start  uint16
	Accept uint16   // the state after the NUL of a name that matches
	Next   []uint16 // by state + column
}

// maxCells bounds tables whatever the caller allows, so that a state fits its type.
const maxCells = 1 << 16

// Compile makes the table of an expression in Go's syntax, of at most so many
// cells. Its errors wrap those above.
func Compile(expression string, cells int) (*Table, error) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	m, err := newMachine(program)
	if err != nil {
		return nil, err
	}
	return m.table(min(cells, maxCells))
}

// Match tells whether a name, which contains no NUL, has a match in it.
func (t *Table) Match(name string) bool {
	state := t.Start
	for i := range len(name) {
		state = t.Next[state+uint16(t.Class[name[i]])]
	}
	return t.Next[state+uint16(t.Class[0])] == t.Accept
}

// set is a sorted set of the machine's nodes: a state of the table.
type set []int32

func (s set) key() string {
	b := make([]byte, 0, 4*len(s))
	for _, node := range s {
		b = binary.NativeEndian.AppendUint32(b, uint32(node))
	}
	return string(b)
}

// table makes the machine deterministic, from the start on. The first two states
// are those in which nothing can change any more.
func (m *machine) table(cells int) (*Table, error) {
	class, examples := m.classes()
	width := len(examples)
	t := &Table{Class: class, Accept: uint16(width)}
	if 3*width > cells {
		return nil, ErrTooLarge
	}
	for range width {
		t.Next = append(t.Next, 0)
	}
	for range width {
		t.Next = append(t.Next, t.Accept)
	}
	b := builder{machine: m, table: t, cells: cells, width: width, states: map[string]uint16{}}
	// The start is a state of its own: nothing leads back to the beginning.
	start := row{set: m.closure(slices.Clone(m.start), true, false), start: true}
	var err error
	if t.Start, err = b.state(start); err != nil {
		return nil, err
	}
	for len(b.todo) > 0 {
		r := b.todo[0]
		b.todo = b.todo[1:]
		if err := b.fill(r, examples); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// row is a state of the table that has to be filled in.
type row struct {
	set
	start bool
	at    uint16
}

// builder makes a table's rows.
type builder struct {
	*machine
	table        *Table
	cells, width int
	states       map[string]uint16
	todo         []row
}

// state returns the state of a row, adding it if need be. Once the expression
// has matched, the rest of the name does not matter.
func (b *builder) state(r row) (uint16, error) {
	if b.matched(r.set) {
		return b.table.Accept, nil
	}
	key := r.key()
	if known, ok := b.states[key]; ok {
		return known, nil
	}
	if len(b.table.Next)+b.width > b.cells {
		return 0, ErrTooLarge
	}
	r.at = uint16(len(b.table.Next))
	if !r.start {
		b.states[key] = r.at
	}
	b.table.Next = append(b.table.Next, make([]uint16, b.width)...)
	b.todo = append(b.todo, r)
	return r.at, nil
}

// fill finds where each column leads from a row. A match may begin at any byte.
func (b *builder) fill(r row, examples []byte) error {
	for column, example := range examples {
		if example == 0 {
			if b.matched(b.closure(slices.Clone(r.set), r.start, true)) {
				b.table.Next[int(r.at)+column] = b.table.Accept
			}
			continue
		}
		next, err := b.state(row{set: b.closure(append(b.step(r.set, example), b.start...), false, false)})
		if err != nil {
			return err
		}
		b.table.Next[int(r.at)+column] = next
	}
	return nil
}

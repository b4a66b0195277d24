package match

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
)

// machine is an expression as nodes that consume bytes.
type machine struct {
	nodes []node
	start set
	seen  []int // by node: the number of the last closure that it is in
	turn  int   // of closures
}

type kind uint8

const (
	kindByte  kind = iota // consumes a byte from lo to hi
	kindSplit             // goes to each of next
	kindBegin             // passes at the beginning of the name
	kindEnd               // passes at its end
	kindMatch
)

type node struct {
	kind   kind
	lo, hi byte
	next   []int32
}

// maxNodes bounds what counted repetitions of large classes of characters can
// make of a short expression.
const maxNodes = 1 << 13

func newMachine(program *syntax.Prog) (*machine, error) {
	// An instruction's node has its number; the bytes of characters come after.
	m := &machine{nodes: make([]node, len(program.Inst)), start: set{int32(program.Start)}}
	for i, instruction := range program.Inst {
		n, err := m.translate(instruction)
		if err != nil {
			return nil, err
		}
		m.nodes[i] = n
		if len(m.nodes) > maxNodes {
			return nil, ErrTooLarge
		}
	}
	m.seen = make([]int, len(m.nodes))
	return m, nil
}

func (m *machine) translate(in syntax.Inst) (node, error) {
	next := []int32{int32(in.Out)}
	switch in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		return node{kind: kindSplit, next: append(next, int32(in.Arg))}, nil
	case syntax.InstCapture, syntax.InstNop:
		return node{kind: kindSplit, next: next}, nil
	case syntax.InstEmptyWidth:
		return emptyWidth(syntax.EmptyOp(in.Arg), next)
	case syntax.InstMatch:
		return node{kind: kindMatch}, nil
	case syntax.InstFail:
		return node{kind: kindSplit}, nil
	}
	return node{kind: kindSplit, next: m.characters(ranges(in), int32(in.Out))}, nil
}

func emptyWidth(op syntax.EmptyOp, next []int32) (node, error) {
	switch op {
	case syntax.EmptyBeginText:
		return node{kind: kindBegin, next: next}, nil
	case syntax.EmptyEndText:
		return node{kind: kindEnd, next: next}, nil
	case syntax.EmptyBeginLine, syntax.EmptyEndLine:
		return node{}, fmt.Errorf("%w: ^ and $ of lines, (?m)", ErrUnsupported)
	}
	return node{}, fmt.Errorf(`%w: \b and \B`, ErrUnsupported)
}

// ranges returns the pairs of first and last characters that an instruction
// consumes.
func ranges(in syntax.Inst) []rune {
	switch in.Op {
	case syntax.InstRuneAny:
		return []rune{0, unicode.MaxRune}
	case syntax.InstRuneAnyNotNL:
		return []rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}
	}
	if len(in.Rune) != 1 {
		return in.Rune
	}
	r := in.Rune[0]
	pairs := []rune{r, r}
	if syntax.Flags(in.Arg)&syntax.FoldCase != 0 {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			pairs = append(pairs, f, f)
		}
	}
	return pairs
}

// characters adds nodes that consume one character of the ranges and lead to
// out; it returns the first ones.
func (m *machine) characters(pairs []rune, out int32) set {
	var first set
	for i := 0; i+1 < len(pairs); i += 2 {
		for _, sequence := range encodings(pairs[i], pairs[i+1]) {
			next := out
			for _, b := range slices.Backward(sequence) {
				m.nodes = append(m.nodes, node{kind: kindByte, lo: b.lo, hi: b.hi, next: []int32{next}})
				next = int32(len(m.nodes) - 1)
			}
			first = append(first, next)
		}
	}
	return first
}

// closure adds to a set what can be reached without a byte, at the beginning or
// the end of the name or in the middle; only nodes that wait for something stay.
func (m *machine) closure(s set, atBegin, atEnd bool) set {
	m.turn++
	var waiting set
	for len(s) > 0 {
		i := s[len(s)-1]
		s = s[:len(s)-1]
		if m.seen[i] == m.turn {
			continue
		}
		m.seen[i] = m.turn
		switch n := m.nodes[i]; {
		case n.kind == kindSplit, n.kind == kindBegin && atBegin, n.kind == kindEnd && atEnd:
			s = append(s, n.next...)
		case n.kind != kindBegin:
			waiting = append(waiting, i)
		}
	}
	slices.Sort(waiting)
	return waiting
}

// step returns the nodes that a set's nodes lead to by a byte.
func (m *machine) step(s set, b byte) set {
	var next set
	for _, i := range s {
		if n := m.nodes[i]; n.kind == kindByte && n.lo <= b && b <= n.hi {
			next = append(next, n.next...)
		}
	}
	return next
}

func (m *machine) matched(s set) bool {
	return slices.ContainsFunc(s, func(i int32) bool { return m.nodes[i].kind == kindMatch })
}

// classes gives every byte a class, with all bytes that no node tells from it;
// NUL has one of its own. It returns an example of each class, too.
func (m *machine) classes() (class [256]byte, examples []byte) {
	var border [257]bool
	border[0], border[1] = true, true
	for _, n := range m.nodes {
		if n.kind == kindByte {
			border[n.lo], border[int(n.hi)+1] = true, true
		}
	}
	for b := range 256 {
		if border[b] {
			examples = append(examples, byte(b))
		}
		class[b] = byte(len(examples) - 1)
	}
	return class, examples
}

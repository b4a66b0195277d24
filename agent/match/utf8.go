package match

import "unicode/utf8"

// byteRange is a byte from lo to hi.
type byteRange struct{ lo, hi byte }

// surrogates are no characters: UTF-8 has no encoding for them.
const (
	firstSurrogate = 0xd800
	lastSurrogate  = 0xdfff
)

// encodings returns sequences of byte ranges that are together the UTF-8
// encodings of the characters from lo to hi.
func encodings(lo, hi rune) [][]byteRange {
	if lo > hi {
		return nil
	}
	if lo <= lastSurrogate && hi >= firstSurrogate {
		return append(encodings(lo, firstSurrogate-1), encodings(lastSurrogate+1, hi)...)
	}
	if at, ok := split(lo, hi); ok {
		return append(encodings(lo, at), encodings(at+1, hi)...)
	}
	var first, last [utf8.UTFMax]byte
	n := utf8.EncodeRune(first[:], lo)
	utf8.EncodeRune(last[:], hi)
	sequence := make([]byteRange, n)
	for i := range sequence {
		sequence[i] = byteRange{first[i], last[i]}
	}
	return [][]byteRange{sequence}
}

// split says after which character a range must be divided, so that in each part
// every byte takes all values from the first character's to the last one's.
func split(lo, hi rune) (rune, bool) {
	for _, last := range []rune{0x7f, 0x7ff, 0xffff} { // of one, two, three bytes
		if lo <= last && last < hi {
			return last, true
		}
	}
	if hi < utf8.RuneSelf {
		return 0, false
	}
	for bits := 6; bits <= 18; bits += 6 { // of the bytes that follow the first
		low := rune(1)<<bits - 1
		if lo&^low == hi&^low {
			break
		}
		if lo&low != 0 {
			return lo | low, true
		}
		if hi&low != low {
			return hi&^low - 1, true
		}
	}
	return 0, false
}

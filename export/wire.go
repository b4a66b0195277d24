package export

import "google.golang.org/protobuf/encoding/protowire"

// The messages of Pyroscope and Parca hold little beside the pprof file, and no
// module that can be depended on has just them; so they are written by field
// number.

// text appends a field of text or bytes, or of another message.
func text[T string | []byte](b []byte, field protowire.Number, value T) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, []byte(value))
}

// pairs appends labels, each a message with its name in 1 and its value in 2.
func pairs(b []byte, field protowire.Number, labels []Label) []byte {
	for _, l := range labels {
		b = text(b, field, text(text([]byte(nil), 1, l.Name), 2, l.Value))
	}
	return b
}

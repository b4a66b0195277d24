// Package match makes of a regular expression a table that decides byte by byte
// whether a name contains a match: small enough for the kernel side to run.
//
// # Words
//
//   - machine: the expression as a non-deterministic automaton over bytes. Go's
//     own compiler makes it, over characters; here each character becomes the
//     bytes of its UTF-8 encoding.
//   - table: the machine made deterministic. Bytes that the expression never
//     tells apart share a column.
//
// A name ends with a NUL, which no name contains: it stands for the end of the
// text, and after it the table is in one of two states, accepting or not.
package match

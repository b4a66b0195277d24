package recording

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// encode writes r as json.Marshal would, but row by row: the text of a whole
// Recording of many threads is larger than the Recording, and would be all in
// memory at once.
func encode(w io.Writer, r *Recording) error {
	e := encoder{w: w}
	fields := reflect.ValueOf(r).Elem()
	next := "{"
	for i := range fields.NumField() {
		name, options, _ := strings.Cut(fields.Type().Field(i).Tag.Get("json"), ",")
		field := fields.Field(i)
		if options == "omitempty" && isEmpty(field) {
			continue
		}
		e.text(fmt.Sprintf("%s%q:", next, name))
		e.field(field)
		next = ","
	}
	e.text("}\n")
	return e.err
}

// encoder remembers the first error.
type encoder struct {
	w   io.Writer
	err error
}

func (e *encoder) text(s string) {
	if e.err == nil {
		_, e.err = io.WriteString(e.w, s)
	}
}

func (e *encoder) value(v reflect.Value) {
	if e.err != nil {
		return
	}
	text, err := json.Marshal(v.Addr().Interface()) // no copy
	if err == nil {
		_, err = e.w.Write(text)
	}
	e.err = err
}

// field writes a table row by row, and anything else in one piece.
func (e *encoder) field(v reflect.Value) {
	if v.Kind() != reflect.Slice || v.Len() == 0 {
		e.value(v)
		return
	}
	next := "["
	for i := range v.Len() {
		e.text(next)
		e.value(v.Index(i))
		next = ","
	}
	e.text("]")
}

// isEmpty is what omitempty means for the kinds of field that a Recording has.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.String:
		return v.Len() == 0
	default:
		return v.IsZero()
	}
}

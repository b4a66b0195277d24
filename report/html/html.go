package html

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"stageprof/correlate"
)

// Write writes the page of a Recording.
func Write(w io.Writer, run correlate.Run) error {
	return write(w, run.Name, makeData(run))
}

// WriteComparison writes the page of a comparison: what changed, and each of
// the Recordings that were compared.
func WriteComparison(w io.Writer, c *correlate.Comparison) error {
	data := makeData(slices.Concat(c.Before, c.After)...)
	data.Shown = len(c.Before) // the first of those after
	data.Comparison = comparisonOf(c)
	return write(w, c.Before[0].Name+" and "+c.After[0].Name, data)
}

func write(w io.Writer, title string, data *pageData) error {
	encoded, err := json.Marshal(data) // escapes what could end the script that holds it
	if err != nil {
		return fmt.Errorf("encoding page: %w", err)
	}
	a, err := readAssets()
	if err != nil {
		return fmt.Errorf("reading the parts of the page: %w", err)
	}
	err = a.frame.Execute(w, map[string]any{
		"Title":  "stageprof: " + title,
		"Policy": a.policy(),
		"Style":  template.CSS(a.style),
		"Script": template.JS(a.script),
		"Data":   template.JS(encoded),
	})
	if err != nil {
		return fmt.Errorf("writing page: %w", err)
	}
	return nil
}

//go:embed page
var files embed.FS

// modules are the scripts, in the order in which they are joined: they share
// one scope, and main uses what the others define.
var modules = []string{
	"format", "dom", "table", "parts", "spans",
	"stages", "lanes", "trend", "timeline", "gil", "debt", "python", "calls", "threads", "notes", "comparison", "main",
}

// assets are the parts of the page that are always the same.
type assets struct {
	frame         *template.Template
	style, script string
}

func readAssets() (a assets, err error) {
	if a.frame, err = template.ParseFS(files, "page/page.html"); err != nil {
		return a, err
	}
	style, err := files.ReadFile("page/style.css")
	if err != nil {
		return a, err
	}
	var script strings.Builder
	script.WriteString("\"use strict\";\n{\n")
	for _, name := range modules {
		module, err := files.ReadFile("page/" + name + ".js")
		if err != nil {
			return a, err
		}
		script.Write(module)
	}
	script.WriteString("}\n")
	a.style, a.script = string(style), script.String()
	return a, nil
}

// policy lets the browser use these assets and nothing else.
func (a *assets) policy() string {
	return "default-src 'none'; script-src '" + hash(a.script) + "'; style-src '" + hash(a.style) +
		"'; base-uri 'none'; form-action 'none'"
}

// hash names a text in a content security policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

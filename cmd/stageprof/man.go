package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newManCmd is for those who make packages, so the help does not list it.
func newManCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man -o DIR",
		Short: "Write the manual pages",
		Long: `Man writes a page for each command, of section 1, into a directory, which it
makes. The pages' date is now, or that of SOURCE_DATE_EPOCH.`,
		Example: `  stageprof man -o /usr/local/share/man/man1`,
		Hidden:  true,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return &usageError{errors.New("where to? name a directory with -o")}
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("making the directory for the pages: %w", err)
			}
			header := &doc.GenManHeader{Section: "1", Source: "stageprof " + versionString(), Manual: "stageprof"}
			if err := doc.GenManTree(cmd.Root(), header, dir); err != nil {
				return fmt.Errorf("writing the pages to %q: %w", dir, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&dir, "output", "o", "", "write the pages into this `directory`")
	return cmd
}

// SPDX-License-Identifier: Apache-2.0
#ifndef SIMCUDA_TRUTHFILE_H
#define SIMCUDA_TRUTHFILE_H

// Writes the rows of all threads as JSON (README.md); "%p" in the path becomes the process id. The
// file appears whole: it is written beside and renamed. Trouble is said on stderr.
void truthfile_write(const char *path);

#endif

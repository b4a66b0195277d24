// SPDX-License-Identifier: Apache-2.0
// Stream capture: work submitted to a capturing stream becomes nodes of a graph.
#ifndef SIMCUDA_CAPTURE_H
#define SIMCUDA_CAPTURE_H

#include "stream.h"

struct capture {
    struct handle handle;
    struct stream *origin;
    struct graph *graph;
    uint64_t id;
    int mode;
    unsigned thread; // that began it
    bool invalid;    // a forbidden call was made: nothing but its end is left
};

// Adds work as a node behind the last one. 901 where the capture is invalid.
CUresult capture_add(struct capture *capture, const struct work *work);

// For calls that a capturing stream forbids (waiting, querying): 900 and the capture is invalid.
CUresult capture_forbids(struct stream *stream);

// A stream that waits for an event recorded in a capture joins it.
void capture_join(struct capture *capture, struct stream *stream);

#endif

// SPDX-License-Identifier: Apache-2.0
#ifndef SIMCUDA_GRAPH_H
#define SIMCUDA_GRAPH_H

#include "work.h"

// A graph without nodes, or NULL.
struct graph *graph_make(void);
CUresult graph_add(struct graph *graph, const struct work *work, CUgraphNode *node);

#endif

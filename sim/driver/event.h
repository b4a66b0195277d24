// SPDX-License-Identifier: Apache-2.0
#ifndef SIMCUDA_EVENT_H
#define SIMCUDA_EVENT_H

#include "stream.h"

// Later work on the stream starts after what the event recorded; a stream joins the event's
// capture.
CUresult event_followed(CUevent event, struct stream *stream);

#endif

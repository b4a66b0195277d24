// SPDX-License-Identifier: Apache-2.0
// Tags that a program puts on its threads' calls (simcuda_tag): small numbers for their texts.
#ifndef SIMCUDA_TAGS_H
#define SIMCUDA_TAGS_H

// Number of a text; 0 is "". The text is copied. Lock-free once the text is known.
unsigned tag_number(const char *text);

const char *tag_text(unsigned tag);

#endif

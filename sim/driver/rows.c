// SPDX-License-Identifier: Apache-2.0
#include "rows.h"

#include <stdlib.h>

static struct rows *make_table(unsigned size) {
    struct rows *table = calloc(1, sizeof(*table) + size * sizeof(table->slots[0]));
    if (!table)
        abort();
    table->mask = size - 1;
    return table;
}

static struct row **find(struct rows *table, unsigned tag, unsigned symbol) {
    unsigned i = (tag * 0x9e3779b9u + symbol * 0x85ebca6bu) >> 8;
    for (;; i++) {
        struct row **slot = &table->slots[i & table->mask];
        if (!*slot || ((*slot)->symbol == symbol && (*slot)->tag == tag))
            return slot;
    }
}

static struct rows *grow(struct rows *old) {
    struct rows *table = make_table((old->mask + 1) * 2);
    for (unsigned i = 0; i <= old->mask; i++)
        if (old->slots[i])
            *find(table, old->slots[i]->tag, old->slots[i]->symbol) = old->slots[i];
    table->used = old->used;
    table->retired = old;
    return table;
}

static struct row *add(struct rows **table, unsigned tag, unsigned symbol) {
    struct rows *t = *table ? *table : make_table(16);
    if (4 * (t->used + 1) > 3 * (t->mask + 1))
        t = grow(t);
    struct row *row = calloc(1, sizeof(*row));
    if (!row)
        abort();
    row->tag = tag;
    row->symbol = symbol;
    t->used++;
    __atomic_store_n(find(t, tag, symbol), row, __ATOMIC_RELEASE);
    __atomic_store_n(table, t, __ATOMIC_RELEASE);
    return row;
}

struct row *rows_get(struct rows **table, unsigned tag, unsigned symbol) {
    if (*table) {
        struct row *row = *find(*table, tag, symbol);
        if (__builtin_expect(row != NULL, 1))
            return row;
    }
    return add(table, tag, symbol);
}

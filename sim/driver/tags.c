// SPDX-License-Identifier: Apache-2.0
#include "tags.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lock.h"

enum { BUCKETS = 4096 };

struct tag {
    struct tag *next;
    unsigned number;
    char text[];
};

static struct tag *buckets[BUCKETS]; // only ever prepended to
static struct tag **tags;            // by number - 1
static unsigned used, capacity;

static struct tag **bucket(const char *text) {
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return &buckets[hash % BUCKETS];
}

static struct tag *find(struct tag *tag, const char *text) {
    while (tag && strcmp(tag->text, text))
        tag = tag->next;
    return tag;
}

static struct tag *add(struct tag **head, const char *text) {
    size_t size = strlen(text) + 1;
    struct tag *tag = malloc(sizeof(*tag) + size);
    if (used == capacity) {
        capacity = capacity ? 2 * capacity : 64;
        tags = realloc(tags, capacity * sizeof(*tags));
    }
    if (!tag || !tags)
        abort();
    memcpy(tag->text, text, size);
    tags[used++] = tag;
    tag->number = used;
    tag->next = *head;
    __atomic_store_n(head, tag, __ATOMIC_RELEASE);
    return tag;
}

unsigned tag_number(const char *text) {
    if (!text || !*text)
        return 0;
    struct tag **head = bucket(text);
    struct tag *tag = find(__atomic_load_n(head, __ATOMIC_ACQUIRE), text);
    if (!tag) {
        sim_lock();
        tag = find(*head, text);
        if (!tag)
            tag = add(head, text);
        sim_unlock();
    }
    return tag->number;
}

const char *tag_text(unsigned tag) {
    if (!tag)
        return "";
    sim_lock();
    const char *text = tags[tag - 1]->text;
    sim_unlock();
    return text;
}

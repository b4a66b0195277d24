// SPDX-License-Identifier: Apache-2.0
//
// The table of names: from any bytes to one immutable struct stageprof_name.
//
// Reading takes no lock, and neither does adding: a signal handler may add a
// name while it interrupts another addition, so nobody may wait for anybody.
// An entry is filled in private and published by one compare-and-swap into a
// hash table that only ever grows.
#include "internal.h"

#include <stdbool.h>
#include <string.h>

#define TABLE_SIZE (2u * STAGEPROF_NAMES) // a power of two, never more than half full

const struct stageprof_name stageprof_too_many_names = {"(too many names)"};
const struct stageprof_name stageprof_too_deep = {"(too deep)"};

// Observers read a name without faulting its page in, and nothing of ours need
// have touched these two.
__attribute__((constructor)) static void touch_constants(void) {
    (void)*(volatile const char *)stageprof_too_many_names.text;
    (void)*(volatile const char *)stageprof_too_deep.text;
}

// What a name was made from. Entries of changed names are told apart by hash
// and length alone, for their bytes are not kept.
struct origin {
    uint64_t hash;
    size_t len;
    bool unchanged;
};

static struct stageprof_name names[STAGEPROF_NAMES];
static struct stageprof_record records[STAGEPROF_NAMES];
static struct origin origins[STAGEPROF_NAMES];
static uint32_t names_used;
static uint32_t table[TABLE_SIZE]; // index into names + 1, 0: empty

// Nothing of ours writes to these two.
#define RECORD(name)                                                                               \
    { .valid = 1, .attributes_size = 1 + sizeof name, .length = sizeof name - 1, .text = name }
static const struct stageprof_record too_many_names_record = RECORD("(too many names)");
static const struct stageprof_record too_deep_record = RECORD("(too deep)");

static void make_record(struct stageprof_record *record, const char *text) {
    size_t length = strlen(text);
    record->valid = 1;
    record->length = (uint8_t)length;
    record->attributes_size = (uint16_t)(2 + length);
    memcpy(record->text, text, length);
}

const struct stageprof_record *stageprof_record_of(const struct stageprof_name *name) {
    uintptr_t at = (uintptr_t)name - (uintptr_t)names;
    if (__builtin_expect(at < sizeof names, 1))
        return &records[at / sizeof *names];
    if (name == &stageprof_too_many_names)
        return &too_many_names_record;
    return name == &stageprof_too_deep ? &too_deep_record : NULL;
}

static uint64_t mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

// The same bytes have the same hash in every process: it is part of the text
// of changed names, and texts are compared between runs and between ranks.
static uint64_t hash_bytes(const char *bytes, size_t len) {
    uint64_t h = mix(0x9ae16a3b2f90404fu, len), word;
    for (; len >= sizeof word; bytes += sizeof word, len -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        h = mix(h, word);
    }
    for (word = 0; len > 0; len--)
        word = word << 8 | (unsigned char)bytes[len - 1];
    return mix(mix(h, word), 0);
}

static bool continues(const unsigned char *s, size_t len, size_t n) {
    for (size_t i = 1; i < n; i++)
        if (i >= len || (s[i] & 0xc0) != 0x80)
            return false;
    return true;
}

// The length of the printable UTF-8 character at s, 0 if there is none: a
// control character (C0, DEL, C1), or bytes that are not UTF-8.
static size_t character(const unsigned char *s, size_t len) {
    if (s[0] < 0x80)
        return s[0] >= 0x20 && s[0] != 0x7f ? 1 : 0;
    if (s[0] >= 0xc2 && s[0] <= 0xdf && continues(s, len, 2))
        return s[0] == 0xc2 && s[1] < 0xa0 ? 0 : 2;
    if ((s[0] & 0xf0) == 0xe0 && continues(s, len, 3)) {
        bool overlong = s[0] == 0xe0 && s[1] < 0xa0;
        bool surrogate = s[0] == 0xed && s[1] >= 0xa0;
        return overlong || surrogate ? 0 : 3;
    }
    if (s[0] >= 0xf0 && s[0] <= 0xf4 && continues(s, len, 4)) {
        bool overlong = s[0] == 0xf0 && s[1] < 0x90;
        bool too_large = s[0] == 0xf4 && s[1] >= 0x90;
        return overlong || too_large ? 0 : 4;
    }
    return 0;
}

static const char hex[] = "0123456789abcdef";

// Writes the character or escaped byte at s to out (4 bytes) and returns how
// many bytes it wrote; *taken is how many it read.
static size_t unit(const unsigned char *s, size_t len, char *out, size_t *taken) {
    size_t n = character(s, len);
    if (n > 0) {
        memcpy(out, s, n);
        *taken = n;
        return n;
    }
    out[0] = '\\';
    out[1] = 'x';
    out[2] = hex[s[0] >> 4];
    out[3] = hex[s[0] & 15];
    *taken = 1;
    return 4;
}

// Copies as many whole units as fit into room bytes; returns the bytes written,
// *taken the bytes read.
static size_t copy_units(const char *bytes, size_t len, char *out, size_t room, size_t *taken) {
    const unsigned char *s = (const unsigned char *)bytes;
    size_t pos = 0, from = 0;
    while (from < len) {
        char piece[4];
        size_t step, n = unit(s + from, len - from, piece, &step);
        if (pos + n > room)
            break;
        memcpy(out + pos, piece, n);
        pos += n;
        from += step;
    }
    *taken = from;
    return pos;
}

static void append_hash(char *out, uint64_t hash) {
    uint32_t h = (uint32_t)(hash ^ hash >> 32);
    *out++ = '#';
    for (int shift = 28; shift >= 0; shift -= 4)
        *out++ = hex[h >> shift & 15];
    *out = '\0';
}

// Fills text from bytes; true if they are kept as they are.
static bool sanitise(const char *bytes, size_t len, uint64_t hash, char *text) {
    enum { ROOM = STAGEPROF_NAME_SIZE - 1, HASH = 9, CUT = 3 };
    size_t taken, n = copy_units(bytes, len, text, ROOM, &taken);
    if (taken == len && n == len) {
        text[n] = '\0';
        return true;
    }
    n = copy_units(bytes, len, text, ROOM - HASH, &taken);
    if (taken < len) {
        n = copy_units(bytes, len, text, ROOM - HASH - CUT, &taken);
        memcpy(text + n, "…", CUT);
        n += CUT;
    }
    append_hash(text + n, hash);
    return false;
}

static bool same(uint32_t index, const char *bytes, size_t len, uint64_t hash) {
    const struct origin *o = &origins[index];
    if (o->hash != hash || o->len != len)
        return false;
    return !o->unchanged || memcmp(names[index].text, bytes, len) == 0;
}

// Finds the entry for these bytes. Returns it, or NULL and in *slot the empty
// place in the table where the search ended.
static const struct stageprof_name *find(const char *bytes, size_t len, uint64_t hash,
                                         uint32_t *slot) {
    for (uint32_t i = (uint32_t)hash % TABLE_SIZE;; i = (i + 1) % TABLE_SIZE) {
        uint32_t entry = LOAD_ACQUIRE(&table[i]);
        if (entry == 0) {
            *slot = i;
            return NULL;
        }
        if (same(entry - 1, bytes, len, hash))
            return &names[entry - 1];
    }
}

// Takes an entry of names. False when there is none left.
static bool reserve(uint32_t *index) {
    uint32_t used = LOAD(&names_used);
    do {
        if (used == STAGEPROF_NAMES)
            return false;
    } while (!__atomic_compare_exchange_n(&names_used, &used, used + 1, false, __ATOMIC_ACQUIRE,
                                          __ATOMIC_RELAXED));
    *index = used;
    return true;
}

// Gives an unpublished entry back. If another one was taken meanwhile the
// entry stays unused: that wastes one of many, once per lost race.
static void release(uint32_t index) {
    uint32_t expected = index + 1;
    __atomic_compare_exchange_n(&names_used, &expected, index, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

static const struct stageprof_name *add(const char *bytes, size_t len, uint64_t hash,
                                        uint32_t slot) {
    uint32_t index;
    if (!reserve(&index))
        return &stageprof_too_many_names;
    bool unchanged = sanitise(bytes, len, hash, names[index].text);
    make_record(&records[index], names[index].text);
    origins[index] = (struct origin){.hash = hash, .len = len, .unchanged = unchanged};

    const struct stageprof_name *found;
    do {
        uint32_t empty = 0;
        if (__atomic_compare_exchange_n(&table[slot], &empty, index + 1, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
            return &names[index];
        found = find(bytes, len, hash, &slot);
    } while (found == NULL);
    release(index);
    return found;
}

const struct stageprof_name *stageprof_intern(const char *bytes, size_t len) {
    if (bytes == NULL || len == 0) {
        bytes = "(empty)";
        len = strlen(bytes);
    }
    uint64_t hash = hash_bytes(bytes, len);
    uint32_t slot;
    const struct stageprof_name *found = find(bytes, len, hash, &slot);
    return found != NULL ? found : add(bytes, len, hash, slot);
}

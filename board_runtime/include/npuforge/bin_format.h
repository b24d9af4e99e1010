/* The `.bin` container (docs/formats.md) for loaders without an operating system: plain C99, one header, no allocation,
 * no library. Nothing of a file may be used before npuforge_bin_check has returned NPUFORGE_BIN_OK; it refuses what the
 * C++ and the Python reader refuse.
 *
 *     uint32_t count;
 *     if (npuforge_bin_check(image, bytes, &count) == NPUFORGE_BIN_OK)
 *         for (uint32_t i = 0; i < count; ++i) use(npuforge_bin_section_at(image, i));
 */
#ifndef NPUFORGE_BIN_FORMAT_H
#define NPUFORGE_BIN_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NPUFORGE_BIN_MAGIC 0xAABBCCDDu
#define NPUFORGE_BIN_VERSION 1u
#define NPUFORGE_BIN_TABLE 16u       /* offset of the section table */
#define NPUFORGE_BIN_ENTRY_BYTES 44u /* name[32], offset, size, dtype */
#define NPUFORGE_BIN_NAME_BYTES 32u  /* zero-padded; a name of 32 characters has no zero behind it */
#define NPUFORGE_BIN_FIRST_DATA 256u
#define NPUFORGE_BIN_ALIGNMENT 64u
#define NPUFORGE_BIN_CRC_BYTES 4u
#define NPUFORGE_BIN_MAX_SECTIONS 65536u

enum npuforge_bin_dtype {
    NPUFORGE_BIN_FLOAT32 = 1,
    NPUFORGE_BIN_INT8 = 2,
    NPUFORGE_BIN_UINT8 = 3,
    NPUFORGE_BIN_INT32 = 4,
    NPUFORGE_BIN_BF16 = 5,
    NPUFORGE_BIN_UINT16 = 6,
    NPUFORGE_BIN_INSTRUCTIONS = 7, /* 128 bytes each */
    NPUFORGE_BIN_JSON = 8,
    NPUFORGE_BIN_INT16 = 9
};

enum npuforge_bin_status {
    NPUFORGE_BIN_OK = 0,
    NPUFORGE_BIN_TRUNCATED,   /* shorter or longer than the header says, or than any file */
    NPUFORGE_BIN_BAD_MAGIC,   /* not a .bin */
    NPUFORGE_BIN_BAD_VERSION, /* of another npuforge */
    NPUFORGE_BIN_BAD_CRC,     /* damaged */
    NPUFORGE_BIN_BAD_TABLE,   /* more sections than the file has room for */
    NPUFORGE_BIN_BAD_NAME,    /* not printable, empty, or twice */
    NPUFORGE_BIN_BAD_DTYPE,   /* unknown, or a size that is no multiple of the element */
    NPUFORGE_BIN_BAD_PLACE,   /* not aligned, outside the data, or over another section */
    NPUFORGE_BIN_BAD_PADDING, /* a gap that is not zero */
    NPUFORGE_BIN_NOT_FOUND
};

/* `data` points into the image. */
struct npuforge_bin_section {
    const uint8_t* data;
    const char* name; /* NPUFORGE_BIN_NAME_BYTES characters, zero-padded */
    uint32_t offset, size, dtype;
};

static inline uint32_t npuforge_bin_word(const uint8_t* at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* CRC-32 (IEEE 802.3), bit by bit: no table in memory. */
static inline uint32_t npuforge_bin_crc32(const uint8_t* bytes, size_t count) {
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < count; ++i) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
    }
    return ~crc;
}

/* Section `index` of a checked image. */
static inline struct npuforge_bin_section npuforge_bin_section_at(const uint8_t* image, uint32_t index) {
    const uint8_t* entry = image + NPUFORGE_BIN_TABLE + (size_t)index * NPUFORGE_BIN_ENTRY_BYTES;
    struct npuforge_bin_section section;
    section.name = (const char*)entry;
    section.offset = npuforge_bin_word(entry + NPUFORGE_BIN_NAME_BYTES);
    section.size = npuforge_bin_word(entry + NPUFORGE_BIN_NAME_BYTES + 4);
    section.dtype = npuforge_bin_word(entry + NPUFORGE_BIN_NAME_BYTES + 8);
    section.data = image + section.offset;
    return section;
}

/* Bytes of one element; 0: no such dtype. */
static inline uint32_t npuforge_bin_item_bytes(uint32_t dtype) {
    static const uint8_t bytes[10] = {0, 4, 1, 1, 4, 2, 2, 128, 1, 2};
    return dtype < 10 ? bytes[dtype] : 0;
}

/* 1 if two zero-padded names, or a name and a C string, are the same. */
static inline int npuforge_bin_same_name(const char* stored, const char* name) {
    for (size_t i = 0; i < NPUFORGE_BIN_NAME_BYTES; ++i) {
        if (stored[i] != name[i]) return 0;
        if (stored[i] == 0) return 1;
    }
    return 1;
}

static inline int npuforge_bin_zero(const uint8_t* image, uint32_t start, uint32_t end) {
    for (uint32_t i = start; i < end; ++i)
        if (image[i] != 0) return 0;
    return 1;
}

static inline enum npuforge_bin_status npuforge_bin_check_name(const uint8_t* image, uint32_t index) {
    const char* name = npuforge_bin_section_at(image, index).name;
    uint32_t length = 0;
    while (length < NPUFORGE_BIN_NAME_BYTES && name[length] != 0) ++length;
    if (length == 0) return NPUFORGE_BIN_BAD_NAME;
    for (uint32_t i = 0; i < NPUFORGE_BIN_NAME_BYTES; ++i) {
        if (i < length ? name[i] < 0x21 || name[i] > 0x7E : name[i] != 0) return NPUFORGE_BIN_BAD_NAME;
    }
    for (uint32_t other = 0; other < index; ++other) {
        if (npuforge_bin_same_name(npuforge_bin_section_at(image, other).name, name)) return NPUFORGE_BIN_BAD_NAME;
    }
    return NPUFORGE_BIN_OK;
}

/* Checks the whole file: lengths, CRC, then table, bounds, overlaps and padding. `count` gets the number of sections.
 */
static inline enum npuforge_bin_status npuforge_bin_check(const uint8_t* image, size_t bytes, uint32_t* count) {
    *count = 0;
    if (bytes < NPUFORGE_BIN_FIRST_DATA + NPUFORGE_BIN_CRC_BYTES || (uint64_t)bytes > 0xFFFFFFFFu)
        return NPUFORGE_BIN_TRUNCATED;
    if (npuforge_bin_word(image) != NPUFORGE_BIN_MAGIC) return NPUFORGE_BIN_BAD_MAGIC;
    if (npuforge_bin_word(image + 4) != NPUFORGE_BIN_VERSION) return NPUFORGE_BIN_BAD_VERSION;
    if (npuforge_bin_word(image + 12) != bytes) return NPUFORGE_BIN_TRUNCATED;
    const uint32_t data_end = (uint32_t)bytes - NPUFORGE_BIN_CRC_BYTES;
    if (npuforge_bin_crc32(image, data_end) != npuforge_bin_word(image + data_end)) return NPUFORGE_BIN_BAD_CRC;
    const uint32_t sections = npuforge_bin_word(image + 8);
    if (sections > NPUFORGE_BIN_MAX_SECTIONS || NPUFORGE_BIN_TABLE + sections * NPUFORGE_BIN_ENTRY_BYTES > data_end)
        return NPUFORGE_BIN_BAD_TABLE;
    const uint32_t table_end = NPUFORGE_BIN_TABLE + sections * NPUFORGE_BIN_ENTRY_BYTES;
    uint32_t first = (table_end + NPUFORGE_BIN_ALIGNMENT - 1) / NPUFORGE_BIN_ALIGNMENT * NPUFORGE_BIN_ALIGNMENT;
    if (first < NPUFORGE_BIN_FIRST_DATA) first = NPUFORGE_BIN_FIRST_DATA;
    for (uint32_t i = 0; i < sections; ++i) {
        const struct npuforge_bin_section section = npuforge_bin_section_at(image, i);
        const enum npuforge_bin_status name = npuforge_bin_check_name(image, i);
        if (name != NPUFORGE_BIN_OK) return name;
        const uint32_t item = npuforge_bin_item_bytes(section.dtype);
        if (item == 0 || section.size % item != 0) return NPUFORGE_BIN_BAD_DTYPE;
        if (section.offset % NPUFORGE_BIN_ALIGNMENT != 0 || section.offset < first || section.offset > data_end ||
            section.size > data_end - section.offset)
            return NPUFORGE_BIN_BAD_PLACE;
    }
    /* By rising offset (then size, then index), without memory: the smallest key above the last one. */
    uint32_t position = table_end, previous = sections;
    for (uint32_t step = 0; step < sections; ++step) {
        uint32_t next = sections;
        for (uint32_t i = 0; i < sections; ++i) {
            const struct npuforge_bin_section one = npuforge_bin_section_at(image, i);
            if (previous != sections) {
                const struct npuforge_bin_section last = npuforge_bin_section_at(image, previous);
                const int above = one.offset != last.offset ? one.offset > last.offset
                                  : one.size != last.size   ? one.size > last.size
                                                            : i > previous;
                if (!above) continue;
            }
            if (next != sections) {
                const struct npuforge_bin_section best = npuforge_bin_section_at(image, next);
                if (one.offset > best.offset || (one.offset == best.offset && one.size >= best.size)) continue;
            }
            next = i;
        }
        const struct npuforge_bin_section section = npuforge_bin_section_at(image, next);
        if (section.offset < position) return NPUFORGE_BIN_BAD_PLACE;
        if (!npuforge_bin_zero(image, position, section.offset)) return NPUFORGE_BIN_BAD_PADDING;
        position = section.offset + section.size;
        previous = next;
    }
    if (!npuforge_bin_zero(image, position, data_end)) return NPUFORGE_BIN_BAD_PADDING;
    *count = sections;
    return NPUFORGE_BIN_OK;
}

/* The section called `name` (a C string of up to 32 characters) of a checked image with `count` sections. */
static inline enum npuforge_bin_status npuforge_bin_find(const uint8_t* image, uint32_t count, const char* name,
                                                         struct npuforge_bin_section* section) {
    for (uint32_t i = 0; i < count; ++i) {
        *section = npuforge_bin_section_at(image, i);
        if (npuforge_bin_same_name(section->name, name)) return NPUFORGE_BIN_OK;
    }
    return NPUFORGE_BIN_NOT_FOUND;
}

#ifdef __cplusplus
}
#endif

#endif /* NPUFORGE_BIN_FORMAT_H */

/* Lists a .bin with the bare-metal header: one line per section, or "refused STATUS". list_bin FILE... reads each file
 * in turn. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "npuforge/bin_format.h"

static int list(const char* path) {
    FILE* stream = fopen(path, "rb");
    if (!stream || fseek(stream, 0, SEEK_END) != 0) return 2;
    const long bytes = ftell(stream);
    uint8_t* image = malloc(bytes > 0 ? (size_t)bytes : 1);
    rewind(stream);
    if (!image || fread(image, 1, (size_t)bytes, stream) != (size_t)bytes) return 2;
    fclose(stream);
    uint32_t count = 0;
    const enum npuforge_bin_status status = npuforge_bin_check(image, (size_t)bytes, &count);
    if (status != NPUFORGE_BIN_OK) printf("refused %d\n", (int)status);
    for (uint32_t i = 0; i < count; ++i) {
        const struct npuforge_bin_section section = npuforge_bin_section_at(image, i);
        printf("%.32s %" PRIu32 " %" PRIu32 " %" PRIu32 " %08" PRIx32 "\n", section.name, section.offset, section.size,
               section.dtype, npuforge_bin_crc32(section.data, section.size));
    }
    struct npuforge_bin_section found;
    if (count && npuforge_bin_find(image, count, "meta", &found) == NPUFORGE_BIN_OK)
        printf("meta at %" PRIu32 "\n", found.offset);
    if (npuforge_bin_find(image, count, "nothing", &found) != NPUFORGE_BIN_NOT_FOUND) return 2;
    free(image);
    return 0;
}

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const int status = list(argv[i]);
        if (status != 0) return status;
    }
    return 0;
}

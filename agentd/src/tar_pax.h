/* What extended headers say: PAX records, and the maps of sparse files. */
#ifndef AGENTD_TAR_PAX_H
#define AGENTD_TAR_PAX_H

#include "tar_read.h"

/* What records of a PAX header may say of the entry after it. NULL, false: they don't. */
struct pax_words {
    const char *path, *link;
    bool has_size, has_uid, has_gid, has_mtime;
    uint64_t size, uid, gid;
    int64_t mtime;
    uint32_t mtime_ns;
    size_t xattr_count; /* in the reader's `xattrs` */
    /* GNU's sparse files. */
    const char *sparse_name;
    const char *sparse_map; /* 0.1 */
    bool has_sparse_size, has_major, has_minor;
    uint64_t sparse_size, sparse_major, sparse_minor;
    bool has_segments; /* 0.0: in the reader's `segments` */
    uint64_t half;     /* 0.0: an offset that waits for its size */
    bool has_half;
};

/* Takes TAR->pax apart, in place. NULL, or what is wrong. */
const char *pax_parse(struct tar_reader *tar, struct pax_words *words);

/* "1,2,3,4" into the reader's segments. */
bool pax_read_map(struct tar_reader *tar, const char *map);

bool tar_add_segment(struct tar_reader *tar, uint64_t offset, uint64_t size);
/* Segments that rise, don't overlap, end within SIZE and have STORED bytes together. */
bool tar_segments_fit(const struct tar_reader *tar, uint64_t size, uint64_t stored);

#endif

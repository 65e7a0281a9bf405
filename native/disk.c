/* What Python's `os` does not offer of the disk.
 *
 * Why: a flush waits for all that was written since the last one; what is on its way by then is not waited for again.
 * Invariant: nothing is waited for, and no error of a write is taken from the flush that is to meet it.
 */
#ifdef __linux__
#define _GNU_SOURCE
#endif

#include "internal.h"

#ifdef __linux__
#include <fcntl.h>
#endif

int sl_start_writing(int descriptor)
{
#ifdef __linux__
    return sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE) == 0 ? SL_OK : SL_ABSENT;
#else
    (void)descriptor;
    return SL_ABSENT;
#endif
}

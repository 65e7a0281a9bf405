"""All limits, and the reasons for their values. FORMAT.md fixes the limits that affect the bytes of files."""

# --- values -----------------------------------------------------------------
INLINE_SIZE_BYTES_MAX = 64
"""The maximum size of a value that is stored inside its parent. The digest, table entry and locator of a node take
about 50 bytes.
"""

LEAF_SIZE_BYTES_MAX = 4096
"""The maximum size of a nested container that is stored as one leaf. It fits one page, so editing it costs no more than
reading it.
"""

BLOB_SIZE_BYTES_MIN = 16384
"""The size above which strings are cut into pieces, so that an append rewrites only the end."""

KEY_SIZE_BYTES_MAX = 4096
"""The maximum size of a dict key or set element. Two of them must fit a chunk of 8 KiB."""

DEPTH_MAX = 128
"""The maximum nesting of a value, checked on write. Decoders stop at 400, and encoders crash at tens of thousands."""

VALUE_SIZE_BYTES_MAX = 256 * 1024 * 1024
"""The maximum size of an encoded write to a channel. LMDB allows 4 GiB, but a small machine has less memory."""

RECORD_SIZE_BYTES_MAX = 1024 * 1024 * 1024
"""The maximum size of a record with all its nodes."""

METADATA_SIZE_BYTES_MAX = 64 * 1024
"""The maximum size of a checkpoint's encoded metadata, which is read with every entry of a history."""

INTEGER_BITS_MAX = 262_144
"""The maximum size of an int. Printing a larger one takes minutes."""

# --- names ------------------------------------------------------------------
ENTRY_ERROR_SIZE_BYTES_MAX = 4096
"""The maximum size of a claim's error: a message, not a large traceback, because every read returns the error."""

ENTRY_KEY_SIZE_BYTES_MAX = 400
THREAD_ID_SIZE_BYTES_MAX = 400
"""The maximum size of a thread id. LMDB's keys have up to 511 bytes. The rest is for prefixes and later additions."""

NAME_SIZE_BYTES_MAX = 255
"""The maximum size of a branch name, tag, channel name or checkpoint id. With prefix and thread, a key stays below 511
bytes.
"""

CHANNELS_MAX = 65_536
"""The maximum number of channels that a schema declares."""

SCHEMA_NAME_SIZE_BYTES_MAX = 200
"""The maximum size of a versioned schema's name, which is stored once in each thread."""

SCHEMA_VERSION_MAX = 1_000_000
"""The maximum version of a schema. A state of version 1 passes one step for each later version."""

POLICIES_MAX = 256
"""The maximum number of patterns with a policy for future threads. The first commit of a thread checks all of them."""

# --- reading ----------------------------------------------------------------
COPIED_SIZE_BYTES_MAX = 16384
"""The maximum size of records that are copied before they are read, because reading a copy is faster than reading the
map.
"""

MIGRATED_STATES_MAX = 1024
MIGRATED_SIZE_BYTES_MAX = 32 * 1024 * 1024
"""The maximum size of migrated states in memory for each store. It is enough for many idle threads."""

# --- file -------------------------------------------------------------------
MAX_SIZE_BYTES_DEFAULT = 256 * 1024**3
"""The default quota. It reserves address space, but no disk space."""

MAX_SIZE_BYTES_MIN = 1024 * 1024
"""The minimum quota. With less, the first commits would fail."""

QUOTA_RESERVE_SHARE = 16
QUOTA_RESERVE_BYTES_MIN = 256 * 1024
"""The minimum part of the quota that is reserved for retention and deletion, because rewriting records takes pages
before it frees any. At most a quarter of the quota is reserved.
"""

LOCK_TIMEOUT_DEFAULT_S = 10.0
"""The default time to wait for another process: far longer than a flush, and shorter than a person's patience."""

INTERVAL_DEFAULT_MS = 50
INTERVAL_MIN_MS = 1
INTERVAL_MAX_MS = 60_000
"""The bounds of the time until the flush of a commit with `interval`. With less than a millisecond, `commit` is
cheaper.
"""

JOURNAL_SIZE_BYTES_MAX = 1024 * 1024
"""When a half of the WAL reaches this size, a checkpoint begins, after some hundred commits. So the WAL stays small."""

JOURNALED_RECORDS_MAX = 2560
"""The number of records in the WAL after which a checkpoint begins. Recovery takes 80 to 140 us for a small record."""

JOURNALED_SIZE_BYTES_MAX = 512 * 1024
"""The maximum size of a commit in the WAL. For a larger commit, a checkpoint flushes the data file."""

HELD_PAGES_MAX = 144
INTERVAL_HELD_PAGES_MAX = 2048
"""The number of pages that commits take before a checkpoint begins: half a megabyte, or eight megabytes with
`interval`. The file grows by as much, because the pages of the durable snapshot are held. Half a megabyte is some 15
commits. With more held pages, LMDB's list of free pages is longer, and each transaction writes it. A test appended 300
B 20,000 times: with 256 held pages, a late commit wrote 1.34 times the bytes of an early commit, with 144 pages 1.30
times, and from 300 pages on, one page more.
"""

DISK_RESERVE_PAGES_MAX = 32
DISK_RESERVE_SHARE = 128
"""The divisor for the disk reserve of a large store, which is at least 1/128 of the store. A small store reserves a
quarter of its pages, but at most 32. The reserve is for retention and deletion on a full disk.
"""

STEP_PAGES_MAX = 32
"""The number of pages by which the file grows in advance. A small file grows by a sixteenth. Writing 128 KiB takes a
fraction of the time that a flush takes.
"""

REWRITTEN_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""The maximum size of the records that one transaction of retention rewrites, unless a single record is larger."""

HELD_PAGES_BOUND = 4096
"""The number of pages (16 MB) since the durable snapshot after which a commit waits for the end of the checkpoint."""

READERS_MAX = 1022
"""The maximum number of snapshots that are open at one time. Each needs a slot of 64 bytes in LMDB's lock file."""

READER_SLOTS = READERS_MAX + 1024
"""The number of slots for all processes, 128 KiB. Besides the snapshots, commits need two slots for each process, and
short reads need one slot for each reading thread."""

SHORT_READS_MIN = 512
"""The number of slots that are kept free of snapshots, for short reads and commits."""

GROUP_COMMITS_MAX = 128
"""The maximum number of commits in one transaction. It limits the latency of the first commit."""

VERSIONS_MAX = 2**32 - 2
"""The maximum number of versions on a branch. The index stores a version in 32 bits, and the last value stands for
none.
"""

GRAPH_CHANNEL = "langgraph:checkpoint"
"""The channel that each checkpoint of LangGraph writes. No channel of an application begins with `langgraph:`."""

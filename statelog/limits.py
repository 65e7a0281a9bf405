"""All limits, and the reasons for their values. FORMAT.md fixes those that affect the bytes of files."""

# --- values -----------------------------------------------------------------
INLINE_SIZE_BYTES_MAX = 64
"""Values up to this size are stored inside their parents, because a node's digest, table entry and locator take about
50 bytes."""

LEAF_SIZE_BYTES_MAX = 4096
"""Nested containers up to this size are one leaf. It fits one page, so editing it costs no more than touching it."""

BLOB_SIZE_BYTES_MIN = 16384
"""Strings above this size are cut into pieces, so that an append rewrites only the end."""

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
"""LMDB's keys have up to 511 bytes. The rest is for prefixes and later additions."""

NAME_SIZE_BYTES_MAX = 255
"""For branches, tags, checkpoint ids and channels. With prefix and thread, a key stays below 511 bytes."""

CHANNELS_MAX = 65_536
"""Maximum number of channels that a schema declares."""

SCHEMA_NAME_SIZE_BYTES_MAX = 200
"""The maximum size of the name of a versioned schema, which is stored once in each thread."""

SCHEMA_VERSION_MAX = 1_000_000
"""The maximum version of a schema. A state of version 1 passes one step for each later version."""

POLICIES_MAX = 256
"""The maximum number of patterns with a policy for future threads. The first commit of a thread checks all of them."""

# --- reading ----------------------------------------------------------------
COPIED_SIZE_BYTES_MAX = 16384
"""Records up to this size are copied before they are read, because reading a copy is faster than reading the map."""

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
"""The part of the quota, and its minimum, that is reserved for retention and deletion. Rewriting records takes pages
before
it frees any. At most a quarter of the quota is reserved."""

LOCK_TIMEOUT_DEFAULT_S = 10.0
"""The default time to wait for another process: far longer than a flush, and shorter than a person's patience."""

INTERVAL_DEFAULT_MS = 50
INTERVAL_MIN_MS = 1
INTERVAL_MAX_MS = 60_000
"""The bounds of the time until the flush of a commit with `interval`. Below a millisecond, `commit` is cheaper."""

JOURNAL_SIZE_BYTES_MAX = 1024 * 1024
"""A checkpoint begins when a half of the WAL has this size, after some hundred commits. So the WAL stays small."""

JOURNALED_RECORDS_MAX = 2560
"""A checkpoint also begins after this number of records. Recovery takes 80 to 140 us for each small record."""

JOURNALED_SIZE_BYTES_MAX = 512 * 1024
"""A larger commit is not written to the WAL. A checkpoint flushes it in the data file."""

HELD_PAGES_MAX = 144
INTERVAL_HELD_PAGES_MAX = 2048
"""A checkpoint begins after commits have taken about this number of pages: half a megabyte, or eight with `interval`.
The file grows by as much, because the pages of the durable snapshot are held. That is some 15 commits. With more held
pages, LMDB's list of free pages is longer, and each of its transactions writes it. With 256, a late commit wrote 1.34
times the bytes of an early one, with 144 1.30 times, and from 300 on one page more (300 B appended, 20,000 times)."""

DISK_RESERVE_PAGES_MAX = 32
DISK_RESERVE_SHARE = 128
"""The disk reserve: pages at the end of the file for retention and deletion on a full disk. It is a quarter of a small
store, then 32 pages, and at least this share of a large store."""

STEP_PAGES_MAX = 32
"""The file grows in advance by this number of pages, and a small file by a sixteenth. 128 KiB are written in a fraction
of the time of a flush."""

REWRITTEN_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""The maximum size of the records that one transaction of retention rewrites, unless a single record is larger."""

HELD_PAGES_BOUND = 4096
"""After this number of pages (16 MB) since the durable snapshot, a commit waits for the end of the checkpoint."""

READERS_MAX = 1022
"""Maximum number of snapshots that are open at one time. Each needs a slot of 64 bytes in LMDB's lock file."""

READER_SLOTS = READERS_MAX + 1024
"""The number of slots for all processes, 128 KiB. Besides the snapshots, commits need two slots for each process, and
short reads need one slot for each reading thread."""

SHORT_READS_MIN = 512
"""The number of slots that snapshots may not take."""

GROUP_COMMITS_MAX = 128
"""The maximum number of commits in one transaction. It limits the latency of the first one."""

VERSIONS_MAX = 2**32 - 2
"""The maximum number of versions on a branch. The index has 32 bits for it, and the last value means none."""

GRAPH_CHANNEL = "langgraph:checkpoint"
"""The channel that each checkpoint of LangGraph writes. No channel of an application begins with `langgraph:`."""

"""Every bound, and why that number. FORMAT.md fixes those that shape bytes."""

# --- values -----------------------------------------------------------------
INLINE_SIZE_BYTES_MAX = 64
"""A value up to here stands inside its parent: below it a node's digest, table
entry and locator (about 50 bytes) would cost as much as the value."""

LEAF_SIZE_BYTES_MAX = 4096
"""A nested container up to here is one leaf: one page, so editing it costs no more than touching it."""

BLOB_SIZE_BYTES_MIN = 16384
"""A string above this is cut into pieces, so that an append rewrites only the end."""

KEY_SIZE_BYTES_MAX = 4096
"""A dict key or set element: two of them must fit an 8 KiB chunk."""

DEPTH_MAX = 128
"""Nesting of a value. Checked on write: decoders stop at 400, encoders crash in the tens of thousands."""

VALUE_SIZE_BYTES_MAX = 256 * 1024 * 1024
"""One write to one channel, encoded. LMDB takes 4 GiB; memory of a small machine does not."""

RECORD_SIZE_BYTES_MAX = 1024 * 1024 * 1024
"""One record, all its nodes."""

METADATA_SIZE_BYTES_MAX = 64 * 1024
"""Metadata of a checkpoint, encoded: it is read with every entry of a history."""

INTEGER_BITS_MAX = 262_144
"""A Python int. Above it, printing one takes minutes."""

# --- names ------------------------------------------------------------------
ENTRY_ERROR_SIZE_BYTES_MAX = 4096
"""Why a claim has failed: a message, and no place for a traceback of megabytes that every look at the entry reads."""

ENTRY_KEY_SIZE_BYTES_MAX = 400
THREAD_ID_SIZE_BYTES_MAX = 400
"""LMDB keys take 511 bytes; prefix and room for what may come."""

NAME_SIZE_BYTES_MAX = 255
"""Branch, tag, checkpoint id, channel: with prefix and thread they stay below 511."""

CHANNELS_MAX = 65_536
"""Maximum number of channels that a schema declares."""

SCHEMA_NAME_SIZE_BYTES_MAX = 200
"""Name of a versioned schema: it is stored once in each thread."""

SCHEMA_VERSION_MAX = 1_000_000
"""Versions of one schema: a state of version 1 passes as many steps."""

POLICIES_MAX = 256
"""Patterns with a retention policy for threads to come: the first commit of a thread looks through all."""

# --- reading ----------------------------------------------------------------
COPIED_SIZE_BYTES_MAX = 16384
"""A record up to here is copied before it is read: reading from the copy is faster than from a view of the map."""

MIGRATED_STATES_MAX = 1024
MIGRATED_SIZE_BYTES_MAX = 32 * 1024 * 1024
"""States of older schema versions that a process remembers migrated, per store: those of many idle threads."""

# --- file -------------------------------------------------------------------
MAX_SIZE_BYTES_DEFAULT = 256 * 1024**3
"""The quota when none is given: address space is reserved, disk is not."""

MAX_SIZE_BYTES_MIN = 1024 * 1024
"""Below this the first commits already fail."""

QUOTA_RESERVE_SHARE = 16
QUOTA_RESERVE_BYTES_MIN = 256 * 1024
"""This share of the quota, and at least so much (but at most a quarter), is left to retention and deletion:
rewriting records takes pages before it frees any, also in a store that is full."""

LOCK_TIMEOUT_DEFAULT_S = 10.0
"""How long to wait for another process's commit: far above any flush, below a person's patience."""

INTERVAL_DEFAULT_MS = 50
INTERVAL_MIN_MS = 1
INTERVAL_MAX_MS = 60_000
"""How long a commit of an `interval` store may wait for its flush; below a millisecond `commit` costs less."""

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
"""Records that one transaction of retention rewrites: large ones a few, or one, at a time."""

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
"""Commits that share one transaction: bounds the latency of the first of them."""

VERSIONS_MAX = 2**32 - 2
"""Versions on a branch: 32-bit in the index, the last value means none."""

GRAPH_CHANNEL = "langgraph:checkpoint"
"""The channel that each checkpoint of LangGraph writes. No channel of an application begins with `langgraph:`."""

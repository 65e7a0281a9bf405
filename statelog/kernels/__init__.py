"""The compiled kernels, as Python functions: the only importer of ``statelog._kernels``.

Every function takes encoded bytes as FORMAT.md draws them and trusts none of it: what the page does not
allow raises ``CorruptionError``. None of them keeps a reference to its input, blocks, or has state that a caller can
see; all may be called from any thread, and the GIL is released inside. The exceptions are ``wake_wait``, which
blocks, ``WakeSlots``, which keeps its file and blocks in ``sleep``, and ``WriterPage``, which keeps its page, blocks in
``acquire`` and belongs to a thread while it is owned.

A *node* is ``data`` (content, then locators) with its ``content_size``. ``home_lsn`` is the LSN of the
record that holds it: locators with LSN 0 leave these functions with ``home_lsn`` instead ("relocated"; with
``home_lsn`` 0, a node of the record being built, they stay 0). ``kind`` is one of the ``KIND_*`` constants;
``is_root`` tells a root, whose tail is meant, from a chunk.
"""

from typing import TYPE_CHECKING

from statelog.kernels.finding import find_key, find_position, fingerprint_find, prints_find
from statelog.kernels.identity import (
    NO_NUMBER,
    chain_digest,
    checkpoint_decode,
    checkpoint_encode,
    checkpoint_read,
    node_digest,
    pack_numbers,
    record_next,
)
from statelog.kernels.lmdb import (
    NO_LAST_PAGE,
    NODE_LONG,
    NODE_TABLE,
    PAGE_BRANCH,
    PAGE_FREE,
    PAGE_LEAF,
    PAGE_OWN,
    PageFacts,
    PageNode,
    PageReader,
    address_of,
    check_leaf_at,
    is_page_free,
    last_page,
    page_in_use,
)
from statelog.kernels.node import (
    KIND_BYTES,
    KIND_DICT,
    KIND_FROZENSET,
    KIND_KEYED,
    KIND_LIST,
    KIND_SET,
    KIND_STR,
    KIND_TUPLE,
    RootHead,
    chunk_summary,
    entries_copy,
    entries_table,
    root_read,
)
from statelog.kernels.objects import encode_plain
from statelog.kernels.record import (
    VACUUMED,
    Lent,
    RecordParts,
    lend,
    record_find,
    record_node,
    record_nodes,
    record_open,
    record_rows,
)
from statelog.kernels.step import (
    STEP_ADD,
    STEP_APPEND,
    STEP_PUT,
    STEP_PUT_ONCE,
    STEP_REMOVE,
    Stepped,
    Wanted,
    pack_change,
    pack_fixed,
    pack_held,
    pack_known,
    step,
    step_list,
    step_prints,
)
from statelog.kernels.version_page import (
    VersionEntry,
    jump_depth,
    page_append,
    page_find,
    page_find_time,
    page_range,
    page_read,
)
from statelog.kernels.wake import (
    WAKE_ASLEEP,
    WAKE_FILE_SIZE_BYTES,
    WAKE_LOST,
    WAKE_SUBJECT_SIZE_BYTES_MAX,
    WAKE_WOKEN,
    WakePlace,
    WakeSlots,
    wake_notify,
    wake_read,
    wake_wait,
)
from statelog.kernels.writer_lock import (
    LOCK_ABANDONED,
    LOCK_BUSY,
    LOCK_INVALID,
    LOCK_LOST,
    LOCK_OWNED,
    WriterPage,
    mutex_owner_at,
    writer_page_size,
)
from statelog.late import late_names

if TYPE_CHECKING:
    from statelog.kernels.cbor import cbor_check, cbor_map_get, cbor_split
    from statelog.kernels.chunking import blob_cuts, boundaries, content_hash
    from statelog.kernels.edit import BATCH_DELETE, BATCH_PUT, chunk_replace, tail_append, tail_merge
    from statelog.kernels.reduce import add, compare, merge_maps, union
    from statelog.kernels.verify import ForeignRef, RecordFacts, RecordVerifier
else:
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "statelog.kernels.cbor": ("cbor_check", "cbor_map_get", "cbor_split"),
            "statelog.kernels.chunking": ("blob_cuts", "boundaries", "content_hash"),
            "statelog.kernels.edit": ("BATCH_DELETE", "BATCH_PUT", "chunk_replace", "tail_append", "tail_merge"),
            "statelog.kernels.reduce": ("add", "compare", "merge_maps", "union"),
            "statelog.kernels.verify": ("ForeignRef", "RecordFacts", "RecordVerifier"),
        },
    )

__all__ = [
    "BATCH_DELETE",
    "BATCH_PUT",
    "KIND_BYTES",
    "KIND_DICT",
    "KIND_FROZENSET",
    "KIND_KEYED",
    "KIND_LIST",
    "KIND_SET",
    "KIND_STR",
    "KIND_TUPLE",
    "LOCK_ABANDONED",
    "LOCK_BUSY",
    "LOCK_INVALID",
    "LOCK_LOST",
    "LOCK_OWNED",
    "NODE_LONG",
    "NODE_TABLE",
    "NO_LAST_PAGE",
    "NO_NUMBER",
    "PAGE_BRANCH",
    "PAGE_FREE",
    "PAGE_LEAF",
    "PAGE_OWN",
    "STEP_ADD",
    "STEP_APPEND",
    "STEP_PUT",
    "STEP_PUT_ONCE",
    "STEP_REMOVE",
    "VACUUMED",
    "WAKE_ASLEEP",
    "WAKE_FILE_SIZE_BYTES",
    "WAKE_LOST",
    "WAKE_SUBJECT_SIZE_BYTES_MAX",
    "WAKE_WOKEN",
    "ForeignRef",
    "Lent",
    "PageFacts",
    "PageNode",
    "PageReader",
    "RecordFacts",
    "RecordParts",
    "RecordVerifier",
    "RootHead",
    "Stepped",
    "VersionEntry",
    "WakePlace",
    "WakeSlots",
    "Wanted",
    "WriterPage",
    "add",
    "address_of",
    "blob_cuts",
    "boundaries",
    "cbor_check",
    "cbor_map_get",
    "cbor_split",
    "chain_digest",
    "check_leaf_at",
    "checkpoint_decode",
    "checkpoint_encode",
    "checkpoint_read",
    "chunk_replace",
    "chunk_summary",
    "compare",
    "content_hash",
    "encode_plain",
    "entries_copy",
    "entries_table",
    "find_key",
    "find_position",
    "fingerprint_find",
    "is_page_free",
    "jump_depth",
    "last_page",
    "lend",
    "merge_maps",
    "mutex_owner_at",
    "node_digest",
    "pack_change",
    "pack_fixed",
    "pack_held",
    "pack_known",
    "pack_numbers",
    "page_append",
    "page_find",
    "page_find_time",
    "page_in_use",
    "page_range",
    "page_read",
    "prints_find",
    "record_find",
    "record_next",
    "record_node",
    "record_nodes",
    "record_open",
    "record_rows",
    "root_read",
    "step",
    "step_list",
    "step_prints",
    "tail_append",
    "tail_merge",
    "union",
    "wake_notify",
    "wake_read",
    "wake_wait",
    "writer_page_size",
]
